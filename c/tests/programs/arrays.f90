!> Arrays of several ranks and types, and what is refused.
program arrays
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
  use unspool
  implicit none

  if (command_argument_count() > 0) call ends()
  call ranks()
  call parts()
  call refusals()
  print '(a)', "arrays: all right"

contains

  subroutine ranks()
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    real(real32), target :: cube(3, 4, 5), found(3, 4, 5)
    complex(real64), target :: z(7), other(7)
    integer(int32), target :: n, m
    integer(int64), allocatable :: versions(:)
    integer :: i
    call options%set("device", "cpu")
    call options%set("host_memory", "1MiB")
    call spool%open(options)
    cube = reshape([(real(i, real32), i=1, 60)], [3, 4, 5])
    z = [(cmplx(i, -i, real64), i=1, 7)]
    n = 42
    call spool%save(5_int64, [array("cube", cube), array("z", z), array("n", n)])
    call spool%expect([5_int64, 5_int64])
    call spool%restore(5_int64, [array("n", m), array("cube", found)])
    call spool%restore(5_int64, [array("z", other)])
    if (any(found /= cube) .or. any(other /= z) .or. m /= n) error stop "other values"
    call spool%versions(versions)
    if (size(versions) /= 1 .or. versions(1) /= 5) error stop "other versions"
    if (.not. spool%contains(5_int64) .or. spool%contains(6_int64)) error stop "other contents"
    if (spool%stat("saves") /= 1) error stop "another number of saves"
    call spool%close(timeout=10.0_real64)
    call options%free()
  end subroutine

  !> An error without `stat`, also in the middle of a `write` to the unit of errors.
  subroutine ends()
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    character(10) :: what
    call get_command_argument(1, what)
    if (what == "option") call options%set("host_memory", "a lot")
    if (what == "write") write (error_unit, *) spool%contains(5_int64)
  end subroutine

  !> What a run has saved is read by another program.
  subroutine parts()
    type(unspool_options) :: options
    type(unspool_checkpointer) :: run
    type(unspool_parts) :: all
    type(unspool_spool) :: part
    real(real64), target :: u(4) = 3, w(4)
    integer(int64) :: step
    integer :: ranks, stat
    call options%set("device", "cpu")
    call options%set("host_memory", "1MiB")
    call run%open("run", options)
    call run%save(5_int64, [array("u", u)], values="five")
    if (run%latest() /= 5) error stop "it was not waited for"
    call run%close()
    step = 7
    call all%find("run", step, ranks, stat)
    if (stat /= unspool_unknown) error stop "a step was found that is not there"
    step = -1
    call all%find("run", step, ranks)
    if (step /= 5 .or. ranks /= 1 .or. all%values(0) /= "five") error stop "other parts"
    call all%open(0, part)
    call part%restore(step, [array("u", w)])
    if (any(w /= u)) error stop "other values of a part"
    call part%close()
    call all%free()
    call options%free()
  end subroutine

  subroutine refusals()
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    real(real64), target :: u(4) = 1, w(3)
    integer :: stat
    character(500) :: message
    call options%set("host_memory", "a lot", stat, message)
    if (stat /= unspool_invalid .or. index(message, "MiB") == 0) error stop "a size was taken"
    call options%set("device", "cpu")
    call options%set("host_memory", "64KiB")
    call spool%open(options)
    call spool%save(0_int64, [array("u", u)])
    call spool%save(0_int64, [array("u", u)], stat=stat)
    if (stat /= unspool_duplicate) error stop "a version was saved twice"
    call spool%restore(0_int64, [array("u", w)], stat=stat, errmsg=message)
    if (stat /= unspool_invalid .or. index(message, "shape") == 0) error stop "another shape was taken"
    call spool%restore(1_int64, [array("u", u)], stat=stat)
    if (stat /= unspool_unknown) error stop "what was never saved was restored"
    call spool%close()
    call options%free()
  end subroutine
end program
