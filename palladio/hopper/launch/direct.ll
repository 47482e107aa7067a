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
  %present = icmp ne i64 %data, 0
  %usable = and i1 %aligned, %present
  br i1 %usable, label %derived, label %no
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

; True in the state of the process that the call was made for.
define internal i1 @as_usual(ptr %call) {{
start:
  %value_place = alloca ptr
{call_fields}
  br label %next_absence
next_absence:
  %n = phi i64 [0, %start], [%n_after, %absence]
  %more = icmp slt i64 %n, %absences
  br i1 %more, label %absence, label %next_choice
absence:
  %n_after = add i64 %n, 1
  %absence_number = mul i64 %n, 2
  %container_place = getelementptr ptr, ptr %absent, i64 %absence_number
  %container = load ptr, ptr %container_place
  %key_place = getelementptr ptr, ptr %container_place, i64 1
  %key = load ptr, ptr %key_place
  %contained = call i32 inttoptr (i64 {PySequence_Contains} to ptr)(ptr %container, ptr %key)
  %missing = icmp eq i32 %contained, 0
  br i1 %missing, label %next_absence, label %clear
next_choice:
  %m = phi i64 [0, %next_absence], [%m_after, %compared]
  %more_choices = icmp slt i64 %m, %choices
  br i1 %more_choices, label %choice, label %yes
choice:
  %m_after = add i64 %m, 1
  %choice_number = mul i64 %m, 2
  %variable_place = getelementptr ptr, ptr %chosen, i64 %choice_number
  %variable = load ptr, ptr %variable_place
  %wanted_place = getelementptr ptr, ptr %variable_place, i64 1
  %wanted = load ptr, ptr %wanted_place
  %failed = call i32 inttoptr (i64 {PyContextVar_Get} to ptr)(ptr %variable, ptr null, ptr %value_place)
  %answered = icmp eq i32 %failed, 0
  br i1 %answered, label %valued, label %clear
valued:
  %value = load ptr, ptr %value_place
  %has_value = icmp ne ptr %value, null
  br i1 %has_value, label %compared, label %no
compared:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %value)
  %same = icmp eq ptr %value, %wanted
  br i1 %same, label %next_choice, label %no
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}}

; True for a number of NumPy of the type that a row describes, whose bits are stored at its place among the numbers.
define internal i1 @is_number(ptr %row, ptr %object, ptr %numbers) {{
start:
  %buffer = alloca [10 x i64]
  %kind = load i64, ptr %row
  %number = and i64 %kind, 4294967295
  %wanted_place = getelementptr ptr, ptr %row, i64 1
  %wanted = load ptr, ptr %wanted_place
  %size_place = getelementptr i64, ptr %row, i64 2
  %size = load i64, ptr %size_place
  %type_field = getelementptr ptr, ptr %object, i64 1
  %type = load ptr, ptr %type_field
  %same_type = icmp eq ptr %type, %wanted
  br i1 %same_type, label %read, label %no
read:
  %failed = call i32 inttoptr (i64 {PyObject_GetBuffer} to ptr)(ptr %object, ptr %buffer, i32 0)
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %sized, label %clear
sized:
  %length_place = getelementptr i64, ptr %buffer, i64 2
  %length = load i64, ptr %length_place
  %same_size = icmp eq i64 %length, %size
  br i1 %same_size, label %copy, label %release
copy:
  %memory = load ptr, ptr %buffer
  %place = getelementptr i64, ptr %numbers, i64 %number
  store i64 0, ptr %place
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %memory, i64 %size, i1 false)
  br label %release
release:
  call void inttoptr (i64 {PyBuffer_Release} to ptr)(ptr %buffer)
  ret i1 %same_size
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %no
no:
  ret i1 false
}}

; True if the result at an address has no byte in common with an operand.
define internal i1 @is_apart(ptr %call, ptr %found, i64 %address) {{
start:
{call_fields}
  %last = mul i64 %operands, 3
  %own_row = getelementptr i64, ptr %rows, i64 %last
  %own_bytes_place = getelementptr i64, ptr %own_row, i64 2
  %own_bytes = load i64, ptr %own_bytes_place
  %own_end = add i64 %address, %own_bytes
  br label %next_operand
next_operand:
  %n = phi i64 [0, %start], [%n_after, %operand]
  %more = icmp slt i64 %n, %operands
  br i1 %more, label %operand, label %yes
operand:
  %n_after = add i64 %n, 1
  %row_number = mul i64 %n, 3
  %row = getelementptr i64, ptr %rows, i64 %row_number
  %bytes_place = getelementptr i64, ptr %row, i64 2
  %bytes = load i64, ptr %bytes_place
  %operand_place = getelementptr i64, ptr %found, i64 %n
  %begin = load i64, ptr %operand_place
  %end = add i64 %begin, %bytes
  %before = icmp ult i64 %address, %end
  %after = icmp ult i64 %begin, %own_end
  %overlap = and i1 %before, %after
  br i1 %overlap, label %no, label %next_operand
no:
  ret i1 false
yes:
  ret i1 true
}}

; A new tensor for the result, with its address at a place; null without one.
define internal ptr @allocated(ptr %call, ptr %place) {{
start:
  %handle_place = alloca ptr
{call_fields}
  %row_number = mul i64 %operands, 3
  %row = getelementptr i64, ptr %rows, i64 %row_number
  %by_python = icmp eq ptr %empty, null
  br i1 %by_python, label %ask, label %allocate
ask:
  %asked = call ptr inttoptr (i64 {PyObject_CallNoArgs} to ptr)(ptr %make)
  %no_memory = icmp eq ptr %asked, null
  br i1 %no_memory, label %clear, label %look
look:
  %fits = call i1 @fits(ptr %call, ptr %row, ptr %asked, ptr %place)
  br i1 %fits, label %made, label %drop
made:
  ret ptr %asked
drop:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %asked)
  br label %none
allocate:
  %kind = load i64, ptr %row
  %axes = and i64 %kind, 4294967295
  %sizes_place = getelementptr ptr, ptr %row, i64 1
  %sizes = load ptr, ptr %sizes_place
  %steps = getelementptr i64, ptr %sizes, i64 %axes
  %type = trunc i64 %dtype to i32
  %home_type = trunc i64 %home to i32
  %home_high = lshr i64 %home, 32
  %home_number = trunc i64 %home_high to i32
  %thread = call ptr inttoptr (i64 {PyEval_SaveThread} to ptr)()
  %failed = call i32 %empty(i64 %axes, ptr %sizes, ptr %steps, i32 %type, i32 %home_type, i32 %home_number, ptr %handle_place)
  call void inttoptr (i64 {PyEval_RestoreThread} to ptr)(ptr %thread)
  %allocated_well = icmp eq i32 %failed, 0
  br i1 %allocated_well, label %locate, label %none
locate:
  %handle = load ptr, ptr %handle_place
  %unknown = call i32 %address_of(ptr %handle, ptr %place)
  %address = load i64, ptr %place
  %low = and i64 %address, {unaligned}
  %unusable = sext i32 %unknown to i64
  %either = or i64 %unusable, %low
  %usable = icmp eq i64 %either, 0
  br i1 %usable, label %wrapped, label %forget
wrapped:
  %tensor = call ptr %wrap(ptr %handle)
  %deleted = call i32 %delete(ptr %handle)
  %has_object = icmp ne ptr %tensor, null
  br i1 %has_object, label %wrapped_well, label %clear
wrapped_well:
  ret ptr %tensor
forget:
  %forgotten = call i32 %delete(ptr %handle)
  br label %none
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %none
none:
  ret ptr null
}}

; The caller's tensor for the result, as a new reference, with its address at a place; null if it cannot be used.
define internal ptr @usable(ptr %call, ptr %out, ptr %found, ptr %place) {{
start:
{call_fields}
  %row_number = mul i64 %operands, 3
  %row = getelementptr i64, ptr %rows, i64 %row_number
  %fits = call i1 @fits(ptr %call, ptr %row, ptr %out, ptr %place)
  br i1 %fits, label %look, label %no
look:
  %address = load i64, ptr %place
  %apart = call i1 @is_apart(ptr %call, ptr %found, i64 %address)
  br i1 %apart, label %yes, label %no
yes:
  call void inttoptr (i64 {Py_IncRef} to ptr)(ptr %out)
  ret ptr %out
no:
  ret ptr null
}}

; True if the operands are those that the rows describe. Addresses are stored at one place, numbers at another.
define internal i1 @all_fit(ptr %call, ptr %tuple, ptr %found, ptr %values) {{
start:
{call_fields}
  %given = call i64 inttoptr (i64 {PyTuple_Size} to ptr)(ptr %tuple)
  %all_given = icmp eq i64 %given, %operands
  br i1 %all_given, label %next_operand, label %clear
next_operand:
  %n = phi i64 [0, %start], [%n_after, %next]
  %more = icmp slt i64 %n, %operands
  br i1 %more, label %operand, label %yes
operand:
  %n_after = add i64 %n, 1
  %object = call ptr inttoptr (i64 {PyTuple_GetItem} to ptr)(ptr %tuple, i64 %n)
  %place = getelementptr i64, ptr %found, i64 %n
  %row_number = mul i64 %n, 3
  %row = getelementptr i64, ptr %rows, i64 %row_number
  %kind = load i64, ptr %row
  %by_value = icmp slt i64 %kind, 0
  br i1 %by_value, label %number, label %array
number:
  store i64 0, ptr %place
  %is_number = call i1 @is_number(ptr %row, ptr %object, ptr %values)
  br i1 %is_number, label %next, label %no
array:
  %fits = call i1 @fits(ptr %call, ptr %row, ptr %object, ptr %place)
  br i1 %fits, label %next, label %no
next:
  br label %next_operand
clear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}}

; (operands, the array for the result or None) -> the result, or None if nothing was launched
define ptr @exchanged(ptr %self, ptr %arguments, i64 %count) {{
start:
  %found = alloca [{most} x i64]
  %values = alloca [{most} x i64]
  %stream_place = alloca i64
  %address_place = alloca i64
  %call = call ptr inttoptr (i64 {PyLong_AsVoidPtr} to ptr)(ptr %self)
{call_fields}
  %usual = call i1 @as_usual(ptr %call)
  br i1 %usual, label %look, label %none
look:
  %tuple = load ptr, ptr %arguments
  %all_fit = call i1 @all_fit(ptr %call, ptr %tuple, ptr %found, ptr %values)
  br i1 %all_fit, label %ask, label %none
ask:
  %device_type = trunc i64 %device to i32
  %high = lshr i64 %device, 32
  %device_number = trunc i64 %high to i32
  %no_stream = call i32 %current_stream(i32 %device_type, i32 %device_number, ptr %stream_place)
  %has_stream = icmp eq i32 %no_stream, 0
  br i1 %has_stream, label %result, label %clear
result:
  %out_place = getelementptr ptr, ptr %arguments, i64 1
  %out = load ptr, ptr %out_place
  %without = icmp eq ptr %out, {none}
  br i1 %without, label %make_one, label %use_one
make_one:
  %new = call ptr @allocated(ptr %call, ptr %address_place)
  br label %look_at_result
use_one:
  %own = call ptr @usable(ptr %call, ptr %out, ptr %found, ptr %address_place)
  br label %look_at_result
look_at_result:
  %made = phi ptr [%new, %make_one], [%own, %use_one]
  %no_result = icmp eq ptr %made, null
  br i1 %no_result, label %none, label %take
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
  %given_place = getelementptr i64, ptr %numbers_place, i64 %numbers
  %given_bytes = mul i64 %given_numbers, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %given_place, ptr %values, i64 %given_bytes, i1 false)
  %stream = load i64, ptr %stream_place
  %status = call i32 @enqueue(ptr %record, i64 %stream)
  %launched = icmp eq i32 %status, 0
  br i1 %launched, label %noted, label %drop
noted:
  %noted_name = call ptr inttoptr (i64 {PyObject_CallOneArg} to ptr)(ptr %note, ptr %name)
  %no_note = icmp eq ptr %noted_name, null
  br i1 %no_note, label %unnoted, label %counted
counted:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %noted_name)
  ret ptr %made
unnoted:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
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
