; A built-in function of Python that runs consecutive calls, for `entry.py`, which fills in the numbers in capitals. Its
; arguments are NumPy arrays, or addresses as integers. `%self` is a NumPy array of the words of a record.

define ptr @enter(ptr %self, ptr %arguments, i64 %count) {
start:
  %data = getelementptr i8, ptr %self, i64 HEADER
  %memory = load ptr, ptr %data
  %record = getelementptr i64, ptr %memory, i64 DEFINITION
FIELDS
  %places = getelementptr i64, ptr %record, i64 WORDS
  br label %next
next:
  %n = phi i64 [0, %start], [%n.after, %write]
  %more = icmp slt i64 %n, %slots
  br i1 %more, label %place, label %run
place:
  %n.after = add i64 %n, 1
  %pair = mul i64 %n, 2
  %number.place = getelementptr i64, ptr %places, i64 %pair
  %number = load i64, ptr %number.place
  %word.place = getelementptr i64, ptr %number.place, i64 1
  %word = load ptr, ptr %word.place
  %argument = getelementptr ptr, ptr %arguments, i64 %number
  %object = load ptr, ptr %argument
  %type.place = getelementptr i8, ptr %object, i64 TYPE
  %type = load ptr, ptr %type.place
  %is.integer = icmp eq ptr %type, %integer
  br i1 %is.integer, label %convert, label %look
convert:
  %converted = call ptr %to_address(ptr %object)
  br label %write
look:
  %first.field = getelementptr i8, ptr %object, i64 HEADER
  %found = load ptr, ptr %first.field
  br label %write
write:
  %address = phi ptr [%converted, %convert], [%found, %look]
  store ptr %address, ptr %word
  br label %next
run:
  %thread = call ptr %save()
  %status = call i32 %native(ptr %calls, ptr null, ptr %at, i64 %first, i64 %last)
  call void %restore(ptr %thread)
  %wide = sext i32 %status to i64
  %result = call ptr %from_number(i64 %wide)
  ret ptr %result
}
