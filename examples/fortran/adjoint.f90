!> The gradient of a heat equation in one dimension, whose states are kept by Revolve in so much
!> memory: of half the sum of squares of the last state, with respect to the first.
!>
!> gfortran $PREFIX/share/unspool/unspool.f90 adjoint.f90 $(pkg-config --libs unspool) -o adjoint
!> ./adjoint [revolve|store-all] [STATES]
program adjoint
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use unspool
  implicit none

  integer, parameter :: cells = 50, steps = 200
  character(20) :: kind = "revolve", slots = "5"
  type(unspool_options) :: options
  type(unspool_spool) :: spool
  type(unspool_schedule) :: schedule
  type(unspool_action) :: action
  real(real64), target :: u(cells)
  real(real64) :: g(cells)
  integer(int64) :: step, states, advances
  integer :: i
  logical :: is_first

  if (command_argument_count() > 0) call get_command_argument(1, kind)
  if (command_argument_count() > 1) call get_command_argument(2, slots)
  read (slots, *) states
  call options%set("device", "cpu")
  call options%set("device_memory", "4KiB")
  call options%set("host_memory", "1MiB")
  call spool%open(options)
  call options%free()
  call schedule%make(kind, int(steps, int64), states)
  u = [(sin(real(i, real64)), i=1, cells)]
  is_first = .true.
  advances = 0
  do
    action = schedule%next()
    select case (action%kind)
    case (unspool_forward)
      do step = action%from, action%to - 1
        u = advanced(u)
      end do
      advances = advances + action%to - action%from
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
  print '(2(i0, a))', steps, " steps, ", advances, " advances"
  print '(es24.16)', g

contains

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
end program
