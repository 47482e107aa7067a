; `direct.py` and `exchanged.py` say what these do, and put addresses and the places of fields between the braces.

; The first free record of a chain, taken; null if there is none.
define internal ptr @take(ptr %first) {{
start:
  br label %next_record
next_record:
  %record = phi ptr [%first, %start], [%following, %taken]
  %all_taken = icmp eq ptr %record, null
  br i1 %all_taken, label %found, label %look
look:
  %taken_field = getelementptr i64, ptr %record, i64 {taken}
  %exchange = cmpxchg ptr %taken_field, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %free, label %found, label %taken
taken:
  %next_field = getelementptr i64, ptr %record, i64 {next}
  %following = load ptr, ptr %next_field
  br label %next_record
found:
  ret ptr %record
}}

; Launch a taken record, whose addresses are written, on a stream, and give it back; the status.
define internal i32 @enqueue(ptr %record, i64 %stream) {{
start:
{fields}
  %taken_field = getelementptr i64, ptr %record, i64 {taken}
  %stream_place = getelementptr i8, ptr %config, i64 {stream}
  store i64 %stream, ptr %stream_place
  %thread = call ptr inttoptr (i64 {PyEval_SaveThread} to ptr)()
  %current_place = alloca ptr
  %only = icmp eq ptr %context, null
  br i1 %only, label %next_map, label %ask
ask:
  %unknown = call i32 inttoptr (i64 {current} to ptr)(ptr %current_place)
  %current = load ptr, ptr %current_place
  %other = icmp ne ptr %current, %context
  br i1 %other, label %done, label %next_map
next_map:
  %m = phi i64 [0, %start], [0, %ask], [%m_after, %pointed]
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
  %status = phi i32 [{invalid_context}, %ask], [%marked, %failed], [%launched, %ready]
  store atomic i64 0, ptr %taken_field release, align 8
  call void inttoptr (i64 {PyEval_RestoreThread} to ptr)(ptr %thread)
  ret i32 %status
}}

; (stream, addresses) -> status
define ptr @launch(ptr %self, ptr %arguments, i64 %count) {{
start:
  %first = call ptr inttoptr (i64 {PyLong_AsVoidPtr} to ptr)(ptr %self)
  %record = call ptr @take(ptr %first)
  %busy = icmp eq ptr %record, null
  br i1 %busy, label %done, label %found
found:
  %arrays_field = getelementptr i64, ptr %record, i64 {arrays}
  %arrays = load i64, ptr %arrays_field
  %addresses_field = getelementptr i64, ptr %record, i64 {addresses}
  %addresses = load ptr, ptr %addresses_field
  %stream_object = load ptr, ptr %arguments
  %stream = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLong} to ptr)(ptr %stream_object)
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
  %launched = call i32 @enqueue(ptr %record, i64 %stream)
  br label %done
done:
  %status = phi i32 [{busy}, %start], [%launched, %read]
  %wide = sext i32 %status to i64
  %result = call ptr inttoptr (i64 {PyLong_FromLong} to ptr)(i64 %wide)
  ret ptr %result
}}

; True if a tensor is the one that a row describes, with its address at a place.
define internal i1 @fits(ptr %call, ptr %row, ptr %object, ptr %place) {{
start:
  %tensor = alloca [6 x i64]
{call_fields}
  %type_field = getelementptr ptr, ptr %object, i64 1
  %type = load ptr, ptr %type_field
  %plain = icmp eq ptr %type, %tensor_type
  %parameter = icmp eq ptr %type, %parameter_type
  %known_type = or i1 %plain, %parameter
  br i1 %known_type, label %look, label %no
look:
  %failed = call i32 %read(ptr %object, ptr %tensor)
  %read_well = icmp eq i32 %failed, 0
  br i1 %read_well, label %compare, label %clear
compare:
  %device_place = getelementptr i64, ptr %tensor, i64 1
  %own_device = load i64, ptr %device_place
  %kind_place = getelementptr i64, ptr %tensor, i64 2
  %own_kind = load i64, ptr %kind_place
  %wanted_kind = load i64, ptr %row
  %same_device = icmp eq i64 %own_device, %device
  %same_kind = icmp eq i64 %own_kind, %wanted_kind
  %same = and i1 %same_device, %same_kind
  br i1 %same, label %shaped, label %no
shaped:
  %axes = and i64 %wanted_kind, 4294967295
  %shape_place = getelementptr i64, ptr %tensor, i64 3
  %shape = load ptr, ptr %shape_place
  %strides_place = getelementptr i64, ptr %tensor, i64 4
  %strides = load ptr, ptr %strides_place
  %sizes_place = getelementptr i64, ptr %row, i64 1
  %sizes = load ptr, ptr %sizes_place
  %steps = getelementptr i64, ptr %sizes, i64 %axes
  br label %next_axis
next_axis:
  %axis = phi i64 [0, %shaped], [%axis_after, %dense]
  %more = icmp slt i64 %axis, %axes
  br i1 %more, label %size, label %placed
size:
  %size_place = getelementptr i64, ptr %shape, i64 %axis
  %own_size = load i64, ptr %size_place
  %wanted_size_place = getelementptr i64, ptr %sizes, i64 %axis
  %wanted_size = load i64, ptr %wanted_size_place
  %same_size = icmp eq i64 %own_size, %wanted_size
  br i1 %same_size, label %step, label %no
step:
  %step_place = getelementptr i64, ptr %strides, i64 %axis
  %own_step = load i64, ptr %step_place
  %wanted_step_place = getelementptr i64, ptr %steps, i64 %axis
  %wanted_step = load i64, ptr %wanted_step_place
  %same_step = icmp eq i64 %own_step, %wanted_step
  %single = icmp eq i64 %own_size, 1
  %fits_step = or i1 %same_step, %single
  br i1 %fits_step, label %dense, label %no
dense:
  %axis_after = add i64 %axis, 1
  br label %next_axis
placed:
  %data = load i64, ptr %tensor
  %offset_place = getelementptr i64, ptr %tensor, i64 5
  %offset = load i64, ptr %offset_place
  %address = add i64 %data, %offset
  %low = and i64 %address, {unaligned}
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %derived, label %no
derived:
  store i64 %address, ptr %place
  %requires = call ptr inttoptr (i64 {PyObject_GetAttr} to ptr)(ptr %object, ptr %requires_grad)
  %missing = icmp eq ptr %requires, null
  br i1 %missing, label %clear, label %counted
counted:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %requires)
  %constant = icmp eq ptr %requires, %false
  br i1 %constant, label %yes, label %ask
ask:
  %enabled = call ptr inttoptr (i64 {PyObject_CallNoArgs} to ptr)(ptr %grad_enabled)
  %no_answer = icmp eq ptr %enabled, null
  br i1 %no_answer, label %clear, label %answered
answered:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %enabled)
  %disabled = icmp eq ptr %enabled, %false
  ret i1 %disabled
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}}

; (tensors) -> the result, or None if nothing was launched
define ptr @exchanged(ptr %self, ptr %arguments, i64 %count) {{
start:
  %found = alloca [{most} x i64]
  %stream_place = alloca i64
  %address_place = alloca i64
  %call = call ptr inttoptr (i64 {PyLong_AsVoidPtr} to ptr)(ptr %self)
{call_fields}
  %tuple = load ptr, ptr %arguments
  %given = call i64 inttoptr (i64 {PyTuple_Size} to ptr)(ptr %tuple)
  %all_given = icmp eq i64 %given, %operands
  br i1 %all_given, label %next_operand, label %clear
next_operand:
  %n = phi i64 [0, %start], [%n_after, %fitting]
  %more = icmp slt i64 %n, %operands
  br i1 %more, label %operand, label %enqueued
operand:
  %object = call ptr inttoptr (i64 {PyTuple_GetItem} to ptr)(ptr %tuple, i64 %n)
  %place = getelementptr i64, ptr %found, i64 %n
  %row_number = mul i64 %n, 2
  %row = getelementptr i64, ptr %rows, i64 %row_number
  %fits = call i1 @fits(ptr %call, ptr %row, ptr %object, ptr %place)
  br i1 %fits, label %fitting, label %none
fitting:
  %n_after = add i64 %n, 1
  br label %next_operand
enqueued:
  %device_type = trunc i64 %device to i32
  %high = lshr i64 %device, 32
  %device_number = trunc i64 %high to i32
  %no_stream = call i32 %current_stream(i32 %device_type, i32 %device_number, ptr %stream_place)
  %has_stream = icmp eq i32 %no_stream, 0
  br i1 %has_stream, label %allocate, label %clear
allocate:
  %made = call ptr inttoptr (i64 {PyObject_CallNoArgs} to ptr)(ptr %make)
  %no_memory = icmp eq ptr %made, null
  br i1 %no_memory, label %clear, label %look
look:
  %last_row_number = mul i64 %operands, 2
  %last_row = getelementptr i64, ptr %rows, i64 %last_row_number
  %new = call i1 @fits(ptr %call, ptr %last_row, ptr %made, ptr %address_place)
  br i1 %new, label %take, label %drop
take:
  %address = load i64, ptr %address_place
  %record = call ptr @take(ptr %records)
  %busy = icmp eq ptr %record, null
  br i1 %busy, label %drop, label %write
write:
  %addresses_field = getelementptr i64, ptr %record, i64 {addresses}
  %addresses = load ptr, ptr %addresses_field
  %operand_bytes = mul i64 %operands, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %addresses, ptr %found, i64 %operand_bytes, i1 false)
  %own_place = getelementptr i64, ptr %addresses, i64 %result_number
  store i64 %address, ptr %own_place
  %numbers_place = getelementptr i64, ptr %own_place, i64 1
  %number_bytes = mul i64 %numbers, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %numbers_place, ptr %words, i64 %number_bytes, i1 false)
  %stream = load i64, ptr %stream_place
  %status = call i32 @enqueue(ptr %record, i64 %stream)
  %launched = icmp eq i32 %status, 0
  br i1 %launched, label %done, label %drop
done:
  ret ptr %made
drop:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %made)
  br label %none
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %none
none:
  call void inttoptr (i64 {Py_IncRef} to ptr)(ptr {none})
  ret ptr {none}
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
