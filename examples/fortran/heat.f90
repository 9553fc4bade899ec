!> A heat equation over the ranks of MPI that goes on where it was when it was ended.
!>
!> mpicc -c $(pkg-config --cflags unspool) $PREFIX/share/unspool/unspool_mpi.c
!> mpifort $PREFIX/share/unspool/unspool.f90 heat.f90 unspool_mpi.o $(pkg-config --libs unspool) -o heat
!> mpirun -n 4 ./heat FOLDER [STEPS] [STEP AT WHICH RANK 0 ABORTS]
program heat
  use, intrinsic :: iso_c_binding, only: c_ptr
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi_f08
  use unspool
  implicit none

  integer, parameter :: cells = 1000
  real(real64), target :: u(0:cells + 1)
  type(unspool_options) :: options
  type(unspool_checkpointer) :: checkpoints
  type(c_ptr) :: ranks
  integer(int64) :: step, steps, abort_at
  integer :: rank, size
  real(real64) :: sum_of_all

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  steps = number(2, 1000_int64)
  abort_at = number(3, -1_int64)
  call options%set("host_memory", "16MiB")
  call options%set("every", "50 steps")
  ranks = unspool_mpi_ranks(MPI_COMM_WORLD%MPI_VAL)
  call checkpoints%open(word(1), options, ranks)
  call options%free()

  call checkpoints%restore([array("u", u)], step)
  if (step < 0) then
    step = 0
    u = 0
    if (rank == 0) u(1:cells/2 - 1) = 1
  else if (rank == 0) then
    print '(a,i0)', "goes on from step ", step
  end if
  do while (step < steps .and. .not. checkpoints%stopping())
    call advance()
    step = step + 1
    call checkpoints%step(step, [array("u", u)])
    if (step == abort_at .and. rank == 0) then
      call MPI_Abort(MPI_COMM_WORLD, 3)
      ! MPICH may return from that, and end its ranks a moment later.
      error stop 3
    end if
  end do
  call MPI_Reduce(sum(u(1:cells)), sum_of_all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0) print '(a,i0,a,es24.16)', "step ", step, ": ", sum_of_all
  call checkpoints%close()
  call unspool_mpi_ranks_free(ranks)
  call MPI_Finalize()

contains

  !> One step of the part of this rank, with the cells of its neighbours at both ends.
  subroutine advance()
    integer :: left, right
    left = modulo(rank - 1, size)
    right = modulo(rank + 1, size)
    call MPI_Sendrecv(u(1), 1, MPI_DOUBLE_PRECISION, left, 0, u(cells + 1), 1, &
      MPI_DOUBLE_PRECISION, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(cells), 1, MPI_DOUBLE_PRECISION, right, 1, u(0), 1, &
      MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    u(1:cells) = u(1:cells) + 0.1_real64*(u(0:cells - 1) - 2*u(1:cells) + u(2:cells + 1)) &
      - 0.01_real64*u(1:cells)**3
  end subroutine

  function word(place) result(text)
    integer, intent(in) :: place
    character(:), allocatable :: text
    integer :: length
    call get_command_argument(place, length=length)
    allocate (character(length) :: text)
    call get_command_argument(place, text)
  end function

  integer(int64) function number(place, otherwise)
    integer, intent(in) :: place
    integer(int64), intent(in) :: otherwise
    character(:), allocatable :: text
    number = otherwise
    text = word(place)
    if (len(text) > 0) read (text, *) number
  end function
end program
