; `direct.py` says what this does, and puts addresses and fields in the places of the braces.
define ptr @launch(ptr %self, ptr %arguments, i64 %count) {{
start:
  %first = call ptr inttoptr (i64 {PyLong_AsVoidPtr} to ptr)(ptr %self)
  br label %next_record
next_record:
  %record = phi ptr [%first, %start], [%following, %taken]
  %all_taken = icmp eq ptr %record, null
  br i1 %all_taken, label %busy, label %look
look:
  %taken_field = getelementptr i64, ptr %record, i64 {taken}
  %exchange = cmpxchg ptr %taken_field, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %free, label %found, label %taken
taken:
  %next_field = getelementptr i64, ptr %record, i64 {next}
  %following = load ptr, ptr %next_field
  br label %next_record
busy:
  %busy_result = call ptr inttoptr (i64 {PyLong_FromLong} to ptr)(i64 {busy})
  ret ptr %busy_result
found:
{fields}
  %stream_object = load ptr, ptr %arguments
  %stream = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLong} to ptr)(ptr %stream_object)
  %stream_place = getelementptr i8, ptr %config, i64 {stream}
  store i64 %stream, ptr %stream_place
  %tuple_place = getelementptr ptr, ptr %arguments, i64 1
  %tuple = load ptr, ptr %tuple_place
  br label %next_array
next_array:
  %n = phi i64 [0, %found], [%n_after, %array]
  %more = icmp slt i64 %n, %arrays
  br i1 %more, label %array, label %read
array:
  %object = call ptr inttoptr (i64 {PyTuple_GetItem} to ptr)(ptr %tuple, i64 %n)
  %value = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLong} to ptr)(ptr %object)
  %place = getelementptr i64, ptr %addresses, i64 %n
  store i64 %value, ptr %place
  %n_after = add i64 %n, 1
  br label %next_array
read:
  %thread = call ptr inttoptr (i64 {PyEval_SaveThread} to ptr)()
  br label %next_map
next_map:
  %m = phi i64 [0, %read], [%m_after, %pointed]
  %more_maps = icmp slt i64 %m, %maps
  br i1 %more_maps, label %map, label %ready
map:
  %offset = mul i64 %m, 24
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %map_at = load ptr, ptr %slot
  %number_place = getelementptr i64, ptr %slot, i64 1
  %number = load i64, ptr %number_place
  %known_place = getelementptr i64, ptr %slot, i64 2
  %known = load i64, ptr %known_place
  %wanted_place = getelementptr i64, ptr %addresses, i64 %number
  %wanted = load i64, ptr %wanted_place
  %same = icmp eq i64 %known, %wanted
  br i1 %same, label %pointed, label %elsewhere
elsewhere:
  %replaced = call i32 inttoptr (i64 {replace} to ptr)(ptr %map_at, i64 %wanted)
  %refused = icmp ne i32 %replaced, 0
  br i1 %refused, label %failed, label %moved
moved:
  store i64 %wanted, ptr %known_place
  br label %pointed
pointed:
  %m_after = add i64 %m, 1
  br label %next_map
failed:
  %marked = add i32 %replaced, {replacing}
  br label %done
ready:
  %launched = call i32 inttoptr (i64 {launch} to ptr)(ptr %config, ptr %kernel, ptr %parameters, ptr null)
  br label %done
done:
  %status = phi i32 [%marked, %failed], [%launched, %ready]
  store atomic i64 0, ptr %taken_field release, align 8
  call void inttoptr (i64 {PyEval_RestoreThread} to ptr)(ptr %thread)
  %wide = sext i32 %status to i64
  %result = call ptr inttoptr (i64 {PyLong_FromLong} to ptr)(i64 %wide)
  ret ptr %result
}}
