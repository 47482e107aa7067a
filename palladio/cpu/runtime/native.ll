; Consecutive calls of kernels, for `native.py`: it fills in the numbers in capitals, and begins each function with the
; addresses of the words that it uses: `%name.place` of the word `name`, and `%failure`, of the status of the first
; thread that fails. `%job` is the words of a call.
;
; kernel   runs calls one after the other
; one      runs a call, by the caller alone or by several threads, and adapts the amount of work up to which it is alone
; spread   begins a parallel region of OpenMP, in which each thread runs `member`
; note     notes the caller's core if the other threads may sleep, or -1
; gather   has the caller wait until the other threads have begun, and let others run on its core meanwhile
; part     has a thread that begins on the caller's core go to another one
; run      takes tasks until none is left or a thread has failed
; wait     waits for the other threads at the end of the tasks, and polls for interrupts

define internal i64 @now(ptr %job) {
  %time = alloca [2 x i64]
  %clock = load ptr, ptr %clock.place
  %missing = icmp eq ptr %clock, null
  br i1 %missing, label %unknown, label %read
unknown:
  ret i64 0
read:
  call i32 %clock(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.place
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

define internal void @fail(ptr %job, i64 %status) {
  %old = cmpxchg ptr %failure, i64 0, i64 %status acq_rel monotonic
  ret void
}

define internal i64 @polled(ptr %job, i64 %last) {
  %now = call i64 @now(ptr %job)
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, POLL_NS
  br i1 %due, label %poll, label %early
early:
  ret i64 %last
poll:
  %responders = load ptr, ptr %responders.place
  %respond = load ptr, ptr %responders
  %answer = call i32 %respond(ptr %poll.place)
  %wrong = icmp ne i32 %answer, 0
  br i1 %wrong, label %stop, label %done
stop:
  call void @fail(ptr %job, i64 CALLBACK_FAILED)
  br label %done
done:
  ret i64 %now
}

define internal void @run(ptr %job, i64 %number) {
  %helps = icmp ne i64 %number, 0
  %kernel = load ptr, ptr %kernel.place
  %arrays = load ptr, ptr %arrays.place
  %sizes = load ptr, ptr %sizes.place
  %arenas = load ptr, ptr %arenas.place
  %stride = load i64, ptr %stride.place
  %first = load i64, ptr %first.place
  %tasks = load i64, ptr %tasks.place
  %chunk = load i64, ptr %chunk.place
  %cleared = load i64, ptr %cleared.place
  %caller = load i64, ptr %caller.place
  %offset = mul i64 %number, %stride
  %arena = getelementptr i8, ptr %arenas, i64 %offset
  %start = call i64 @now(ptr %job)
  br label %clear
clear:
  %word = phi i64 [0, %entry], [%word.next, %zero]
  %some = icmp ult i64 %word, %cleared
  br i1 %some, label %zero, label %clean
zero:
  %word.place = getelementptr i64, ptr %arena, i64 %word
  store i64 0, ptr %word.place
  %word.next = add i64 %word, 1
  br label %clear
clean:
  %calls = icmp sge i64 %caller, 0
  br i1 %calls, label %connect, label %ready
connect:
  %responders = load ptr, ptr %responders.place
  %own.place = getelementptr ptr, ptr %responders, i64 %number
  %own = load ptr, ptr %own.place
  %caller.place.in.arena = getelementptr i8, ptr %arena, i64 %caller
  store ptr %own, ptr %caller.place.in.arena
  br label %ready
ready:
  br label %turn
turn:
  %last = phi i64 [%start, %ready], [%last.next, %again]
  %failed = load atomic i64, ptr %failure acquire, align 8
  %goes.on = icmp eq i64 %failed, 0
  br i1 %goes.on, label %take, label %end
take:
  %from = atomicrmw add ptr %next.place, i64 %chunk monotonic
  %left = icmp slt i64 %from, %tasks
  br i1 %left, label %work, label %end
work:
  %to.whole = add i64 %from, %chunk
  %over = icmp sgt i64 %to.whole, %tasks
  %to = select i1 %over, i64 %tasks, i64 %to.whole
  %begin = add i64 %from, %first
  %stop = add i64 %to, %first
  %status = call i32 %kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %begin, i64 %stop)
  %wrong = icmp ne i32 %status, 0
  br i1 %wrong, label %broken, label %next
broken:
  %status.wide = zext i32 %status to i64
  call void @fail(ptr %job, i64 %status.wide)
  br label %end
next:
  br i1 %helps, label %again, label %poll
poll:
  %last.polled = call i64 @polled(ptr %job, i64 %last)
  br label %again
again:
  %last.next = phi i64 [%last, %next], [%last.polled, %poll]
  br label %turn
end:
  %now = call i64 @now(ptr %job)
  %time = sub i64 %now, %start
  atomicrmw add ptr %busy.place, i64 %time monotonic
  ret void
}

define internal void @wait(ptr %job) {
  %start = call i64 @now(ptr %job)
  br label %turn
turn:
  %turns = phi i64 [0, %entry], [%turns.next, %again]
  %last = phi i64 [%start, %entry], [%last.next, %again]
  %entered = load atomic i64, ptr %entered.place acquire, align 8
  %ended = load atomic i64, ptr %ended.place acquire, align 8
  %all = icmp eq i64 %entered, %ended
  br i1 %all, label %done, label %inside
done:
  ret void
inside:
  %turns.next = add i64 %turns, 1
  %soon = icmp ult i64 %turns, SPINS
  br i1 %soon, label %spin, label %sleep
spin:
  PAUSE
  br label %again
sleep:
  %function = load ptr, ptr %sleep.place
  call i32 %function(i32 NAP_US)
  %last.polled = call i64 @polled(ptr %job, i64 %last)
  br label %again
again:
  %last.next = phi i64 [%last, %spin], [%last.polled, %sleep]
  br label %turn
}

define internal void @note(ptr %job) {
  store i64 -1, ptr %core.place
  %core_of = load ptr, ptr %core_of.place
  %missing = icmp eq ptr %core_of, null
  br i1 %missing, label %done, label %ask
ask:
  %last.address = load ptr, ptr %last.place
  %last = load atomic i64, ptr %last.address monotonic, align 8
  %now = call i64 @now(ptr %job)
  %passed = sub i64 %now, %last
  %rested = icmp sgt i64 %passed, RESTED_NS
  br i1 %rested, label %look, label %done
look:
  %narrow = call i32 %core_of()
  %core = sext i32 %narrow to i64
  store i64 %core, ptr %core.place
  br label %done
done:
  ret void
}

define internal void @gather(ptr %job) {
  %core = load i64, ptr %core.place
  %rested = icmp sge i64 %core, 0
  br i1 %rested, label %begin, label %done
begin:
  %threads = load i64, ptr %threads.place
  %start = call i64 @now(ptr %job)
  br label %turn
turn:
  %entered = load atomic i64, ptr %entered.place acquire, align 8
  %missing = icmp ult i64 %entered, %threads
  br i1 %missing, label %late, label %done
late:
  %now = call i64 @now(ptr %job)
  %passed = sub i64 %now, %start
  %soon = icmp slt i64 %passed, PATIENCE_NS
  br i1 %soon, label %spin, label %ask
spin:
  PAUSE
  br label %turn
ask:
  %worth = icmp slt i64 %passed, GATHER_NS
  br i1 %worth, label %give, label %done
give:
  %function = load ptr, ptr %yield.place
  call i32 %function()
  br label %turn
done:
  ret void
}

define internal void @part(ptr %job) {
  %cores = alloca <CORE_WORDS x i64>
  %fewer = alloca <CORE_WORDS x i64>
  %core = load i64, ptr %core.place
  %rested = icmp sge i64 %core, 0
  br i1 %rested, label %ask, label %done
ask:
  %core_of = load ptr, ptr %core_of.place
  %narrow = call i32 %core_of()
  %own = sext i32 %narrow to i64
  %same = icmp eq i64 %own, %core
  br i1 %same, label %look, label %done
look:
  %get = load ptr, ptr %get_cores.place
  %wrong = call i32 %get(i32 0, i64 CORE_BYTES, ptr %cores)
  %known = icmp eq i32 %wrong, 0
  br i1 %known, label %count, label %done
count:
  %mask = load <CORE_WORDS x i64>, ptr %cores
  %each = call <CORE_WORDS x i64> @llvm.ctpop(<CORE_WORDS x i64> %mask)
  %most = call i64 @llvm.vector.reduce.add(<CORE_WORDS x i64> %each)
  %threads = load i64, ptr %threads.place
  %enough = icmp sge i64 %most, %threads
  br i1 %enough, label %go, label %done
go:
  %place = lshr i64 %core, 6
  %position = and i64 %core, 63
  %bit = shl i64 1, %position
  %others = xor i64 %bit, -1
  %word = extractelement <CORE_WORDS x i64> %mask, i64 %place
  %word.others = and i64 %word, %others
  %mask.others = insertelement <CORE_WORDS x i64> %mask, i64 %word.others, i64 %place
  store <CORE_WORDS x i64> %mask.others, ptr %fewer
  %set = load ptr, ptr %set_cores.place
  call i32 %set(i32 0, i64 CORE_BYTES, ptr %fewer)
  call i32 %set(i32 0, i64 CORE_BYTES, ptr %cores)
  br label %done
done:
  ret void
}

define internal void @member(ptr %job) {
  %function = load ptr, ptr %number.place
  %narrow = call i32 %function()
  %number = zext i32 %narrow to i64
  %threads = load i64, ptr %threads.place
  %wanted = icmp ult i64 %number, %threads
  br i1 %wanted, label %enter, label %leave
leave:
  ret void
enter:
  atomicrmw add ptr %entered.place, i64 1 acq_rel
  %first = icmp eq i64 %number, 0
  br i1 %first, label %call, label %help
call:
  call void @gather(ptr %job)
  call void @run(ptr %job, i64 0)
  atomicrmw add ptr %ended.place, i64 1 acq_rel
  call void @wait(ptr %job)
  ret void
help:
  call void @part(ptr %job)
  %own = alloca [ENVIRONMENT x i64]
  %get = load ptr, ptr %get_environment.place
  call i32 %get(ptr %own)
  %set = load ptr, ptr %set_environment.place
  call i32 %set(ptr %environment.place)
  call void @run(ptr %job, i64 %number)
  call i32 %set(ptr %own)
  atomicrmw add ptr %ended.place, i64 1 acq_rel
  ret void
}

define internal i32 @spread(ptr %job) {
  %parallel = load ptr, ptr %parallel.place
  %missing = icmp eq ptr %parallel, null
  br i1 %missing, label %refuse, label %check
check:
  %forked.address = load ptr, ptr %forked.place
  %forked = load i64, ptr %forked.address
  %alone = icmp ne i64 %forked, 0
  br i1 %alone, label %refuse, label %ask
ask:
  %function = load ptr, ptr %most.place
  %most = call i32 %function()
  %wide = sext i32 %most to i64
  %threads = load i64, ptr %threads.place
  %few = icmp slt i64 %wide, %threads
  br i1 %few, label %refuse, label %begin
refuse:
  ret i32 SPREAD
begin:
  %get = load ptr, ptr %get_environment.place
  call i32 %get(ptr %environment.place)
  %spread.place = getelementptr i64, ptr %failure, i64 1
  store i64 1, ptr %spread.place
  call void @note(ptr %job)
  call void %parallel(ptr @member, ptr %job, i32 %most, i32 0)
  store i64 0, ptr %spread.place
  %last.address = load ptr, ptr %last.place
  %now = call i64 @now(ptr %job)
  store atomic i64 %now, ptr %last.address monotonic, align 8
  ret i32 0
}

define internal i32 @one(ptr %job) {
  %known = load i64, ptr %known.place
  %dynamic = load ptr, ptr %dynamic.place
  %axes = load i64, ptr %axes.place
  %sizes = load ptr, ptr %sizes.place
  br label %axis
axis:
  %number = phi i64 [0, %entry], [%number.next, %fits]
  %tasks = phi i64 [%known, %entry], [%tasks.next, %fits]
  %more = icmp ult i64 %number, %axes
  br i1 %more, label %size, label %sized
size:
  %number.next = add i64 %number, 1
  %row = mul i64 %number, 3
  %address.place = getelementptr i64, ptr %dynamic, i64 %row
  %address = load ptr, ptr %address.place
  %narrow = load i32, ptr %address
  %value = sext i32 %narrow to i64
  %empty = icmp slt i64 %value, 1
  br i1 %empty, label %refuse, label %fits
refuse:
  store i64 %value, ptr %tasks.place
  ret i32 EMPTY_GRID
fits:
  %axis.place = getelementptr i64, ptr %address.place, i64 1
  %position = load i64, ptr %axis.place
  %counts.place = getelementptr i64, ptr %address.place, i64 2
  %counts = load i64, ptr %counts.place
  %size.place = getelementptr i64, ptr %sizes, i64 %position
  store i64 %value, ptr %size.place
  %counted = icmp ne i64 %counts, 0
  %factor = select i1 %counted, i64 %value, i64 1
  %tasks.next = mul i64 %tasks, %factor
  br label %axis
sized:
  store i64 %tasks, ptr %tasks.place
  store i64 0, ptr %next.place
  store i64 0, ptr %entered.place
  store i64 0, ptr %ended.place
  store i64 0, ptr %busy.place
  store i64 0, ptr %failure
  %weight = load i64, ptr %weight.place
  %amount = mul i64 %tasks, %weight
  %brief.address = load ptr, ptr %brief.place
  %brief = load i64, ptr %brief.address
  %large = icmp sgt i64 %amount, %brief
  %several = icmp sgt i64 %tasks, 1
  %most = load i64, ptr %most_threads.place
  %fewer = icmp slt i64 %tasks, %most
  %threads = select i1 %fewer, i64 %tasks, i64 %most
  %two = icmp sgt i64 %threads, 1
  %both = and i1 %large, %several
  %spreads = and i1 %both, %two
  ; Work for several threads is done in pieces by one alone too, which notices interrupts between them.
  %turns = mul i64 %most, TURNS
  %part = sdiv i64 %tasks, %turns
  %some = icmp sgt i64 %part, 0
  %piece = select i1 %some, i64 %part, i64 1
  %chunk = select i1 %both, i64 %piece, i64 %tasks
  store i64 %chunk, ptr %chunk.place
  br i1 %spreads, label %spread, label %alone
alone:
  %alone.ns = load i64, ptr %alone_ns.place
  call void @run(ptr %job, i64 0)
  br label %measured
spread:
  store i64 %threads, ptr %threads.place
  %refused = call i32 @spread(ptr %job)
  %back = icmp ne i32 %refused, 0
  br i1 %back, label %give, label %measured
give:
  ret i32 %refused
measured:
  %limit = phi i64 [%alone.ns, %alone], [BRIEF_SPREAD_NS, %spread]
  %failed = load atomic i64, ptr %failure acquire, align 8
  %wrong = icmp ne i64 %failed, 0
  br i1 %wrong, label %fail, label %noted
fail:
  %status = trunc i64 %failed to i32
  ret i32 %status
noted:
  %busy = load atomic i64, ptr %busy.place monotonic, align 8
  %timed = icmp ne i64 %busy, 0
  %tells = and i1 %several, %timed
  br i1 %tells, label %note, label %done
note:
  %quick = icmp ult i64 %busy, %limit
  %less = sub i64 %amount, 1
  %lower = icmp slt i64 %brief, %less
  %lowered = select i1 %lower, i64 %brief, i64 %less
  %raised = select i1 %large, i64 %amount, i64 %brief
  %brief.now = select i1 %quick, i64 %raised, i64 %lowered
  store i64 %brief.now, ptr %brief.address
  br label %done
done:
  ret i32 0
}

define i32 @kernel(ptr %jobs, ptr %unused, ptr %at, i64 %first, i64 %last) {
  br label %turn
turn:
  %number = phi i64 [%first, %entry], [%number.next, %done]
  %more = icmp slt i64 %number, %last
  br i1 %more, label %work, label %end
end:
  ret i32 0
work:
  %words = mul i64 %number, WORDS
  %job = getelementptr i64, ptr %jobs, i64 %words
  %status = call i32 @one(ptr %job)
  %wrong = icmp ne i32 %status, 0
  br i1 %wrong, label %stop, label %done
stop:
  store i64 %number, ptr %at
  ret i32 %status
done:
  %number.next = add i64 %number, 1
  br label %turn
}
