"""The driver's code: LLVM IR for x86-64 Linux that executes a table of steps with threads.

Comes in: a pool (threads and their meeting points) and a job (what one run needs), both plain
memory with the layouts below.  Three functions are exported:

- `graphflow_pool(threads, barrier_spins, idle_spins) -> pool` starts `threads - 1` detached
  workers; null if the system refuses a thread or memory.  A pool is never freed.
- `graphflow_run(pool, job, first) -> next` executes the job from step `first` on, with the pool's
  threads and the caller.  It gives 0 when done and -1 if the same job is being executed by another
  caller; otherwise it paused, and is to be called again with what it gave.  It pauses between steps
  when a call has taken as long as the job says: Python handles no signals while in native code.
  The pool may be null for a job without parallel steps.
- `graphflow_spin(count)` pauses that often, to find out how long a pause takes.

What always holds: a worker touches neither a job nor a kernel after it has arrived at the meeting
that ends the run, so whoever called may free both.  A thread waits by spinning a bounded number of
times, then sleeps in the kernel; a sleeper first counts itself, and whoever changes the word looks
at the count afterwards (both sequentially consistent), so no wake-up is lost.  Every thread runs
under the caller's floating-point control word, hence rounds as the caller would.

Spinning is harmful when the awaited thread would need this very processor, which happens whenever
another process occupies the rest or the scheduler wakes a thread where its waker runs.  So threads
publish where they run (when a run starts and when they wake; -1 while they sleep).  A waiter that
finds another thread of the pool on its own processor has a worker moved to one where none of them
runs, at most once a tick of the clock, and sleeps at once where that is refused.  Otherwise both
would go on waking each other on one processor beside an idle one, which takes tens of microseconds
each time.  Yielding instead is no way out: a thread that yields to a foreign process is gone for
milliseconds.
"""

DRIVER = r"""
target triple = "x86_64-unknown-linux-gnu"

; Each group that one side writes and the other polls has 128 bytes of its own: two cache lines,
; because the neighbour line is prefetched along.
%Pool = type {
  i32, i32, ptr, i32, [108 x i8],   ;  0 epoch, 1 workers asleep, 2 job, 3 control word
  i32, [124 x i8],                  ;  5 threads that arrived at the barrier
  i32, i32, [120 x i8],             ;  7 barrier generation, 8 threads asleep in it
  i64, i32, i32, i64, [104 x i8],   ; 10 threads, 11 spins in a barrier, 12 between runs, 13 moved
  [128 x i8],                       ; 15 mutex: one run at a time
  [0 x %Worker]                     ; 16
}
%Worker = type {
  ptr, i64, i32, i32, [104 x i8],   ; pool, index (the caller is 0), 2 processor, 3 thread's id
  i64, [120 x i8]                   ; 5 claim: of which step how many chunks of its share are taken
}
%Job = type {
  i32, i32,                         ; 0 free 0, executed 1, paused 2; 1 has parallel steps
  ptr, i64,                         ; 2 steps, 3 their number
  ptr,                              ; 4 pointers: the buffers of all steps
  ptr, i64,                         ; 5 patches, 6 their number
  ptr,                              ; 7 addresses of graph inputs and outputs
  i32, i32,                         ; 8 bits to set in the control word, 9 unused
  i64, i64,                         ; 10 first step, 11 step to pause before (0: none)
  i64, i64                          ; 12 patience and 13 deadline of one call in nanoseconds
}
%Step = type { ptr, i64, i64, i64, i64 }  ; kernel, first pointer, extent, threads, barrier after
%Patch = type { i64, i64, i64 }           ; pointers[first] becomes addresses[second] + third

declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @aligned_alloc(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)

; Publishes and returns the processor that thread %me runs on; the line is shared, so it is written
; only when it changes.
define internal i32 @publish(ptr %pool, i64 %me) {
entry:
  %at = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %me, i32 2
  %here = call i32 @sched_getcpu()
  %known = load atomic i32, ptr %at monotonic, align 4
  %same = icmp eq i32 %known, %here
  br i1 %same, label %done, label %moved
moved:
  store atomic i32 %here, ptr %at monotonic, align 4
  br label %done
done:
  ret i32 %here
}

; Moves worker %index to a processor that it may use and that no thread of the pool was seen on;
; false if there is none (the system refuses an empty mask) or one was moved in this tick.  The mask
; is given back at once, so the scheduler remains free, and a limit that the user set remains.
define internal i1 @spread(ptr %pool, i64 %index) {
entry:
  %mask = alloca [128 x i8], align 16
  %rest = alloca [128 x i8], align 16
  %moved.at = getelementptr %Pool, ptr %pool, i64 0, i32 13
  %moved = load atomic i64, ptr %moved.at monotonic, align 8
  %now = call i64 @nanoseconds()
  %again = icmp eq i64 %moved, %now
  br i1 %again, label %no, label %read
read:
  store atomic i64 %now, ptr %moved.at monotonic, align 8
  %worker = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %index
  %id.at = getelementptr %Worker, ptr %worker, i64 0, i32 3
  %id = load atomic i32, ptr %id.at monotonic, align 4
  %got = call i32 @sched_getaffinity(i32 %id, i64 128, ptr %mask)
  %unknown = icmp ne i32 %got, 0
  br i1 %unknown, label %no, label %narrow
narrow:
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %mask, i64 128, i1 false)
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %threads = load i64, ptr %threads.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %narrow ], [ %i.next, %following ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %look, label %move
look:
  %at = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %i, i32 2
  %taken = load atomic i32, ptr %at monotonic, align 4
  %inside = icmp ult i32 %taken, 1024
  br i1 %inside, label %exclude, label %following
exclude:
  %byte = lshr i32 %taken, 3
  %byte.at = getelementptr i8, ptr %rest, i32 %byte
  %bit = and i32 %taken, 7
  %bit.byte = trunc i32 %bit to i8
  %one = shl i8 1, %bit.byte
  %others = xor i8 %one, -1
  %old = load i8, ptr %byte.at, align 1
  %new = and i8 %old, %others
  store i8 %new, ptr %byte.at, align 1
  br label %following
following:
  %i.next = add i64 %i, 1
  br label %head
move:
  %set = call i32 @sched_setaffinity(i32 %id, i64 128, ptr %rest)
  %refused = icmp ne i32 %set, 0
  br i1 %refused, label %no, label %yes
yes:
  %reset = call i32 @sched_setaffinity(i32 %id, i64 128, ptr %mask)
  %here.at = getelementptr %Worker, ptr %worker, i64 0, i32 2
  store atomic i32 -1, ptr %here.at monotonic, align 4
  ret i1 true
no:
  ret i1 false
}

; Whether another thread of the pool was last seen on the processor of thread %me, and stays there.
define internal i1 @crowded(ptr %pool, i64 %me) {
entry:
  %here = call i32 @publish(ptr %pool, i64 %me)
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %threads = load i64, ptr %threads.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %following ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %look, label %none
look:
  %at = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %i, i32 2
  %there = load atomic i32, ptr %at monotonic, align 4
  %same = icmp eq i32 %there, %here
  %other = icmp ne i64 %i, %me
  %found = and i1 %same, %other
  br i1 %found, label %yes, label %following
following:
  %i.next = add i64 %i, 1
  br label %head
yes:
  %mine = icmp ugt i64 %me, %i
  %worker = select i1 %mine, i64 %me, i64 %i  ; not the caller: its thread is the user's
  %gone = call i1 @spread(ptr %pool, i64 %worker)
  %stays = xor i1 %gone, true
  ret i1 %stays
none:
  ret i1 false
}

; Returns when *word differs from %seen.
define internal void @wait_for_change(
    ptr %pool, i64 %me, ptr %word, i32 %seen, ptr %sleepers, i32 %spins) {
entry:
  br label %look
look:
  %left = phi i32 [ %spins, %entry ], [ %less, %pause ], [ %less, %consider ]
  %now = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %done, label %patience
patience:
  %spent = icmp sle i32 %left, 0
  br i1 %spent, label %doze, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %less = sub i32 %left, 1
  %bits = and i32 %less, 63         ; every one or two microseconds
  %turn = icmp eq i32 %bits, 0
  br i1 %turn, label %consider, label %look
consider:
  %crowded = call i1 @crowded(ptr %pool, i64 %me)
  br i1 %crowded, label %doze, label %look
doze:                               ; whoever sleeps is in nobody's way
  %at = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %me, i32 2
  store atomic i32 -1, ptr %at monotonic, align 4
  %count = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %sleep
sleep:                              ; 202 futex, 128 FUTEX_WAIT | FUTEX_PRIVATE_FLAG
  %seen.wide = zext i32 %seen to i64
  %slept = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 128, i64 %seen.wide, ptr null)
  %later = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %later, %seen
  br i1 %same, label %sleep, label %awake
awake:
  %back = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %here = call i32 @publish(ptr %pool, i64 %me)
  br label %done
done:
  ret void
}

define internal void @change(ptr %word, i32 %value, ptr %sleepers) {
entry:
  store atomic i32 %value, ptr %word seq_cst, align 4
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %count, 0
  br i1 %any, label %wake, label %done
wake:                               ; 129 FUTEX_WAKE | FUTEX_PRIVATE_FLAG, everyone
  %woken = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 129, i64 2147483647)
  br label %done
done:
  ret void
}

; The last to arrive resets the count and opens the next generation.  A worker at the end of a run
; does not wait: the next thing it waits for is the next epoch, which comes after the generation.
define internal void @meet(ptr %pool, i64 %me, i1 %wait) {
entry:
  %arrived = getelementptr %Pool, ptr %pool, i64 0, i32 5
  %generation = getelementptr %Pool, ptr %pool, i64 0, i32 7
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 8
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %threads = load i64, ptr %threads.at, align 8
  %all = trunc i64 %threads to i32
  %mine = load atomic i32, ptr %generation monotonic, align 4
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel
  %count = add i32 %before, 1
  %last = icmp eq i32 %count, %all
  br i1 %last, label %open, label %other
open:
  store atomic i32 0, ptr %arrived monotonic, align 4
  %next = add i32 %mine, 1
  call void @change(ptr %generation, i32 %next, ptr %sleepers)
  ret void
other:
  br i1 %wait, label %stay, label %leave
stay:
  %spins.at = getelementptr %Pool, ptr %pool, i64 0, i32 11
  %spins = load i32, ptr %spins.at, align 4
  call void @wait_for_change(
      ptr %pool, i64 %me, ptr %generation, i32 %mine, ptr %sleepers, i32 %spins)
  ret void
leave:
  ret void
}

; Nanoseconds of a clock that is read in a few of them: 6 CLOCK_MONOTONIC_COARSE.
define internal i64 @nanoseconds() {
entry:
  %time = alloca { i64, i64 }, align 8
  %read = call i32 @clock_gettime(i32 6, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; The caller alone decides to pause before step %next, ahead of the meeting that all threads have in
; between; behind it they all see the decision.
define internal void @consider_pause(ptr %job, i64 %me, i64 %next) {
entry:
  %caller = icmp eq i64 %me, 0
  br i1 %caller, label %look, label %done
look:
  %now = call i64 @nanoseconds()
  %deadline.at = getelementptr %Job, ptr %job, i64 0, i32 13
  %deadline = load i64, ptr %deadline.at, align 8
  %late = icmp sge i64 %now, %deadline
  br i1 %late, label %pause, label %done
pause:
  %stop.at = getelementptr %Job, ptr %job, i64 0, i32 11
  store atomic i64 %next, ptr %stop.at monotonic, align 8
  br label %done
done:
  ret void
}

; The share of thread %me of a step's %n: iterations [extent * me / n, extent * (me + 1) / n).  It
; takes them in up to 16 chunks, and then chunks of the others' shares that nobody has taken yet: a
; processor may be slower than another one, or away for a while.  A claim is 256 times the step's
; number, from 1 on, plus the number of chunks taken; a smaller one is of an earlier step, a larger
; one cannot be, for all threads meet behind a step that they share.
; Without a pool any step may be followed by a pause, otherwise only those that all threads finish.
define internal void @execute(ptr %pool, ptr %job, i64 %me) {
entry:
  %steps.at = getelementptr %Job, ptr %job, i64 0, i32 2
  %steps = load ptr, ptr %steps.at, align 8
  %count.at = getelementptr %Job, ptr %job, i64 0, i32 3
  %count = load i64, ptr %count.at, align 8
  %pointers.at = getelementptr %Job, ptr %job, i64 0, i32 4
  %pointers = load ptr, ptr %pointers.at, align 8
  %begin.at = getelementptr %Job, ptr %job, i64 0, i32 10
  %begin = load i64, ptr %begin.at, align 8
  %stop.at = getelementptr %Job, ptr %job, i64 0, i32 11
  %lonely = icmp eq ptr %pool, null
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %after ], [ %i.next, %look ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %extent.at = getelementptr %Step, ptr %steps, i64 %i, i32 2
  %threads.at = getelementptr %Step, ptr %steps, i64 %i, i32 3
  %barrier.at = getelementptr %Step, ptr %steps, i64 %i, i32 4
  %threads = load i64, ptr %threads.at, align 8
  %mine = icmp ult i64 %me, %threads
  br i1 %mine, label %work, label %after
work:
  %kernel.at = getelementptr %Step, ptr %steps, i64 %i, i32 0
  %kernel = load ptr, ptr %kernel.at, align 8
  %first.at = getelementptr %Step, ptr %steps, i64 %i, i32 1
  %first = load i64, ptr %first.at, align 8
  %buffers = getelementptr ptr, ptr %pointers, i64 %first
  %extent = load i64, ptr %extent.at, align 8
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %whole, label %share
whole:
  call void %kernel(ptr %buffers, i64 0, i64 %extent)
  br label %after
share:
  %number = add i64 %i, 1
  %none.taken = shl i64 %number, 8
  br label %others
others:
  %k = phi i64 [ 0, %share ], [ %k.next, %exhausted ]
  %any = icmp ult i64 %k, %threads
  br i1 %any, label %other, label %after
other:
  %round = add i64 %me, %k
  %around = icmp uge i64 %round, %threads
  %wrapped = sub i64 %round, %threads
  %owner = select i1 %around, i64 %wrapped, i64 %round
  %next.owner = add i64 %owner, 1
  %lo.all = mul i64 %extent, %owner
  %lo = udiv i64 %lo.all, %threads
  %hi.all = mul i64 %extent, %next.owner
  %hi = udiv i64 %hi.all, %threads
  %length = sub i64 %hi, %lo
  %few = icmp ult i64 %length, 16
  %chunks = select i1 %few, i64 %length, i64 16
  %claim = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %owner, i32 5
  %first.seen = load atomic i64, ptr %claim monotonic, align 8
  br label %look.again
look.again:
  %seen = phi i64 [ %first.seen, %other ], [ %found, %take ], [ %mine.now, %run ]
  %begun = icmp uge i64 %seen, %none.taken
  %count.taken = sub i64 %seen, %none.taken
  %chunk = select i1 %begun, i64 %count.taken, i64 0
  %left = icmp ult i64 %chunk, %chunks
  br i1 %left, label %take, label %exhausted
take:
  %next.chunk = add i64 %chunk, 1
  %mine.now = add i64 %none.taken, %next.chunk
  %exchange = cmpxchg ptr %claim, i64 %seen, i64 %mine.now acq_rel monotonic
  %found = extractvalue { i64, i1 } %exchange, 0
  %won = extractvalue { i64, i1 } %exchange, 1
  br i1 %won, label %run, label %look.again
run:
  %from.all = mul i64 %length, %chunk
  %from.part = udiv i64 %from.all, %chunks
  %from = add i64 %lo, %from.part
  %to.all = mul i64 %length, %next.chunk
  %to.part = udiv i64 %to.all, %chunks
  %to = add i64 %lo, %to.part
  call void %kernel(ptr %buffers, i64 %from, i64 %to)
  br label %look.again
exhausted:
  %k.next = add i64 %k, 1
  br label %others
after:
  %i.next = add i64 %i, 1
  %barrier = load i64, ptr %barrier.at, align 8
  %meet = icmp ne i64 %barrier, 0
  %between = or i1 %meet, %lonely
  br i1 %between, label %consider, label %head
consider:
  call void @consider_pause(ptr %job, i64 %me, i64 %i.next)
  br i1 %meet, label %together, label %look
together:
  call void @meet(ptr %pool, i64 %me, i1 true)
  br label %look
look:
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %paused = icmp eq i64 %stop, %i.next
  br i1 %paused, label %done, label %head
done:
  ret void
}

define internal ptr @work(ptr %worker) {
entry:
  %control = alloca i32, align 4
  %pool = load ptr, ptr %worker, align 8
  %me.at = getelementptr %Worker, ptr %worker, i64 0, i32 1
  %me = load i64, ptr %me.at, align 8
  %epoch = getelementptr %Pool, ptr %pool, i64 0, i32 0
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %job.at = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %control.at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %spins.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %spins = load i32, ptr %spins.at, align 4
  %id = call i64 (i64, ...) @syscall(i64 186)  ; gettid
  %id.word = trunc i64 %id to i32
  %id.at = getelementptr %Worker, ptr %worker, i64 0, i32 3
  store atomic i32 %id.word, ptr %id.at monotonic, align 4
  br label %idle
idle:                               ; a run starts only after every worker finished the last one,
  %seen = phi i32 [ 0, %entry ], [ %new, %idle ]  ; so the epoch moves one at a time
  call void @wait_for_change(
      ptr %pool, i64 %me, ptr %epoch, i32 %seen, ptr %sleepers, i32 %spins)
  %new = add i32 %seen, 1
  %job = load ptr, ptr %job.at, align 8
  %word = load i32, ptr %control.at, align 4
  store i32 %word, ptr %control, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %control)
  %here = call i32 @publish(ptr %pool, i64 %me)
  call void @execute(ptr %pool, ptr %job, i64 %me)
  call void @meet(ptr %pool, i64 %me, i1 false)
  br label %idle
}

; Before a run, while all workers wait for it.
define internal void @forget_claims(ptr %pool) {
entry:
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %threads = load i64, ptr %threads.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %body, label %done
body:
  %claim = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %i, i32 5
  store atomic i64 0, ptr %claim monotonic, align 8
  %i.next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @execute_together(ptr %pool, ptr %job, i32 %word) {
entry:
  %mutex = getelementptr %Pool, ptr %pool, i64 0, i32 15
  %epoch = getelementptr %Pool, ptr %pool, i64 0, i32 0
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %job.at = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %control.at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %here = call i32 @publish(ptr %pool, i64 0)
  store ptr %job, ptr %job.at, align 8
  store i32 %word, ptr %control.at, align 4
  call void @forget_claims(ptr %pool)
  %now = load atomic i32, ptr %epoch monotonic, align 4
  %next = add i32 %now, 1
  call void @change(ptr %epoch, i32 %next, ptr %sleepers)
  call void @execute(ptr %pool, ptr %job, i64 0)
  call void @meet(ptr %pool, i64 0, i1 true)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @apply_patches(ptr %job) {
entry:
  %pointers.at = getelementptr %Job, ptr %job, i64 0, i32 4
  %pointers = load ptr, ptr %pointers.at, align 8
  %patches.at = getelementptr %Job, ptr %job, i64 0, i32 5
  %patches = load ptr, ptr %patches.at, align 8
  %count.at = getelementptr %Job, ptr %job, i64 0, i32 6
  %count = load i64, ptr %count.at, align 8
  %addresses.at = getelementptr %Job, ptr %job, i64 0, i32 7
  %addresses = load ptr, ptr %addresses.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %slot.at = getelementptr %Patch, ptr %patches, i64 %i, i32 0
  %slot = load i64, ptr %slot.at, align 8
  %source.at = getelementptr %Patch, ptr %patches, i64 %i, i32 1
  %source = load i64, ptr %source.at, align 8
  %from = getelementptr ptr, ptr %addresses, i64 %source
  %address = load ptr, ptr %from, align 8
  %offset.at = getelementptr %Patch, ptr %patches, i64 %i, i32 2
  %offset = load i64, ptr %offset.at, align 8
  %begin = getelementptr i8, ptr %address, i64 %offset
  %to = getelementptr ptr, ptr %pointers, i64 %slot
  store ptr %begin, ptr %to, align 8
  %i.next = add i64 %i, 1
  br label %head
done:
  ret void
}

define i64 @graphflow_run(ptr %pool, ptr %job, i64 %first) {
entry:
  %control = alloca i32, align 4
  %saved = alloca i32, align 4
  %fresh = icmp eq i64 %first, 0
  %expected = select i1 %fresh, i32 0, i32 2
  %claim = cmpxchg ptr %job, i32 %expected, i32 1 acquire monotonic
  %claimed = extractvalue { i32, i1 } %claim, 1
  br i1 %claimed, label %begin, label %busy
begin:
  call void @apply_patches(ptr %job)
  %first.at = getelementptr %Job, ptr %job, i64 0, i32 10
  store i64 %first, ptr %first.at, align 8
  %stop.at = getelementptr %Job, ptr %job, i64 0, i32 11
  store i64 0, ptr %stop.at, align 8
  %patience.at = getelementptr %Job, ptr %job, i64 0, i32 12
  %patience = load i64, ptr %patience.at, align 8
  %deadline.at = getelementptr %Job, ptr %job, i64 0, i32 13
  %now = call i64 @nanoseconds()
  %deadline = add i64 %now, %patience
  store i64 %deadline, ptr %deadline.at, align 8
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %old = load i32, ptr %saved, align 4
  %set.at = getelementptr %Job, ptr %job, i64 0, i32 8
  %set = load i32, ptr %set.at, align 4
  %with = or i32 %old, %set
  %word = and i32 %with, -64        ; without the six sticky exception flags
  store i32 %word, ptr %control, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %control)
  %parallel.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %parallel = load i32, ptr %parallel.at, align 4
  %together = icmp ne i32 %parallel, 0
  br i1 %together, label %many, label %one
many:
  call void @execute_together(ptr %pool, ptr %job, i32 %word)
  br label %end
one:
  call void @execute(ptr null, ptr %job, i64 0)
  br label %end
end:
  call void @llvm.x86.sse.ldmxcsr(ptr %saved)
  %next = load i64, ptr %stop.at, align 8
  %finished = icmp eq i64 %next, 0
  %state = select i1 %finished, i32 0, i32 2
  store atomic i32 %state, ptr %job release, align 4
  ret i64 %next
busy:
  ret i64 -1
}

define void @graphflow_spin(i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  call void @llvm.x86.sse2.pause()
  %i.next = add i64 %i, 1
  br label %head
done:
  ret void
}

; Workers block every signal that is not their own fault: Python's handlers belong to its threads,
; while a crash in a kernel must still be reported where it happens.
define internal void @block_signals(ptr %old) {
  %mask = alloca [128 x i8], align 16
  %filled = call i32 @sigfillset(ptr %mask)
  %ill = call i32 @sigdelset(ptr %mask, i32 4)
  %trap = call i32 @sigdelset(ptr %mask, i32 5)
  %abrt = call i32 @sigdelset(ptr %mask, i32 6)
  %bus = call i32 @sigdelset(ptr %mask, i32 7)
  %fpe = call i32 @sigdelset(ptr %mask, i32 8)
  %segv = call i32 @sigdelset(ptr %mask, i32 11)
  %set = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %old)
  ret void
}

define internal i1 @start_workers(ptr %pool, i64 %threads) {
entry:
  %old = alloca [128 x i8], align 16
  %attributes = alloca [128 x i8], align 16
  %thread = alloca i64, align 8
  call void @block_signals(ptr %old)
  %made = call i32 @pthread_attr_init(ptr %attributes)
  ; Kernels keep their scratch memory on the stack; only touched pages cost anything.
  %sized = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 16777216)
  %detached = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  br label %head
head:
  %i = phi i64 [ 1, %entry ], [ %i.next, %started ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %start, label %end
start:
  %worker = getelementptr %Pool, ptr %pool, i64 0, i32 16, i64 %i
  store ptr %pool, ptr %worker, align 8
  %processor.at = getelementptr %Worker, ptr %worker, i64 0, i32 2
  store i32 -1, ptr %processor.at, align 4
  %index.at = getelementptr %Worker, ptr %worker, i64 0, i32 1
  store i64 %i, ptr %index.at, align 8
  %error = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @work, ptr %worker)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %end, label %started
started:
  %i.next = add i64 %i, 1
  br label %head
end:
  %ok = phi i1 [ true, %head ], [ false, %start ]
  %destroyed = call i32 @pthread_attr_destroy(ptr %attributes)
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret i1 %ok
}

define ptr @graphflow_pool(i64 %threads, i32 %barrier.spins, i32 %idle.spins) {
entry:
  %workers.bytes = mul i64 %threads, 256
  %bytes = add i64 %workers.bytes, 767  ; 640 and up to the next multiple of 128
  %size = and i64 %bytes, -128
  %pool = call ptr @aligned_alloc(i64 128, i64 %size)
  %none = icmp eq ptr %pool, null
  br i1 %none, label %failed, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 %size, i1 false)
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  store i64 %threads, ptr %threads.at, align 8
  %barrier.at = getelementptr %Pool, ptr %pool, i64 0, i32 11
  store i32 %barrier.spins, ptr %barrier.at, align 4
  %idle.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  store i32 %idle.spins, ptr %idle.at, align 4
  %ok = call i1 @start_workers(ptr %pool, i64 %threads)
  br i1 %ok, label %done, label %failed
done:
  ret ptr %pool
failed:
  ret ptr null
}
"""
