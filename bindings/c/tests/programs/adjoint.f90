!> The gradient of a heat equation in one dimension by Revolve with four states, beside the gradient
!> with every state kept: the same bits. Also what is refused, and that arrays keep their ranks.
program adjoint
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use unspool
  implicit none

  integer, parameter :: cells = 50, steps = 40
  real(real64) :: by_revolve(cells), by_storing(cells)

  call gradient("store-all", int(steps, int64), by_storing)
  call gradient("revolve", 4_int64, by_revolve)
  if (any(by_revolve /= by_storing)) error stop "the gradients differ"
  if (all(by_revolve == 0)) error stop "there is no gradient"
  call ranks()
  call refusals()
  print '(a)', "adjoint: all right"

contains

  !> The gradient of half the sum of squares of the last state with respect to the first.
  subroutine gradient(kind, slots, g)
    character(*), intent(in) :: kind
    integer(int64), intent(in) :: slots
    real(real64), intent(out) :: g(:)
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    type(unspool_schedule) :: schedule
    type(unspool_action) :: action
    real(real64), target :: u(cells)
    integer(int64) :: step
    integer :: i
    logical :: is_first
    call options%set("on", "cpu")
    call options%set("device", "4KiB")
    call options%set("host", "1MiB")
    call spool%open(options)
    call options%free()
    call schedule%make(kind, int(steps, int64), slots)
    u = [(sin(real(i, real64)), i=1, cells)]
    is_first = .true.
    do
      action = schedule%next()
      select case (action%kind)
      case (unspool_forward)
        do step = action%from, action%to - 1
          u = advanced(u)
        end do
      case (unspool_save_action)
        call spool%save(action%from, [array("u", u)])
      case (unspool_restore_action)
        call spool%restore(action%from, [array("u", u)])
      case (unspool_reverse)
        if (is_first) g = advanced(u)
        is_first = .false.
        g = adjoined(u, g)
      case (unspool_discard_action)
        call spool%discard(action%from)
      case (unspool_end)
        exit
      end select
    end do
    call schedule%free()
    call spool%close()
  end subroutine

  !> One step with a conductivity that depends on the state, so that its adjoint needs the state.
  function advanced(u) result(next)
    real(real64), intent(in) :: u(:)
    real(real64) :: next(size(u))
    next = u + 0.1_real64*(cshift(u, 1) - 2*u + cshift(u, -1)) - 0.01_real64*u**3
  end function

  function adjoined(u, g) result(before)
    real(real64), intent(in) :: u(:), g(:)
    real(real64) :: before(size(u))
    before = g + 0.1_real64*(cshift(g, 1) - 2*g + cshift(g, -1)) - 0.03_real64*u**2*g
  end function

  subroutine ranks()
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    real(real32), target :: cube(3, 4, 5), found(3, 4, 5)
    complex(real64), target :: z(7), other(7)
    integer(int32), target :: n, m
    integer(int64), allocatable :: versions(:)
    integer :: i
    call options%set("on", "cpu")
    call options%set("host", "1MiB")
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

  subroutine refusals()
    type(unspool_options) :: options
    type(unspool_spool) :: spool
    real(real64), target :: u(4) = 1, w(3)
    integer :: stat
    character(500) :: message
    call options%set("host", "a lot", stat, message)
    if (stat /= unspool_invalid .or. index(message, "MiB") == 0) error stop "a size was taken"
    call options%set("on", "cpu")
    call options%set("host", "64KiB")
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
