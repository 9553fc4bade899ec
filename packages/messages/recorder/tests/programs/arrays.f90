! Two ranks exchange arrays by functions of the module mpi_f08 that take them as such, with counts of
! 32 bits and of 64 bits, and print a sum of what they got. With an argument one of them sends every
! second value of an array.
program arrays
    use mpi_f08_arrays
    implicit none
    integer, parameter :: n = 2500
    integer(kind=MPI_COUNT_KIND), parameter :: long = n
    integer :: rank, peer, turn, got
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: status
    double precision :: out(n), in(n), every(2, n), total, sums(1), own(1)
    character(len=16) :: what
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    peer = 1 - rank
    total = 0
    do turn = 1, 30
        call fill
        call MPI_Irecv(in, long, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, requests(1))
        call MPI_Isend(out, long, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, requests(2))
        call MPI_Wait(requests(1), status)
        call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
        call check(1)
        ! A count of 32 bits at one end, and one of 64 bits at the other.
        if (rank == 0) then
            call MPI_Send(out, long, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD)
            call MPI_Recv(in, long, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, status)
        else
            call MPI_Recv(in, n, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, status)
            call MPI_Send(out, n, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD)
        end if
        call check(2)
        call MPI_Sendrecv(out, long, MPI_DOUBLE_PRECISION, peer, 3, in, long, MPI_DOUBLE_PRECISION, peer, 3, &
            MPI_COMM_WORLD, status)
        call check(3)
    end do
    own = rank
    call MPI_Allreduce(own, sums, 1_MPI_COUNT_KIND, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    if (sums(1) /= 1) stop 5
    call get_command_argument(1, what)
    if (what == 'every') then
        every = -1
        call fill
        every(2, :) = out
        if (rank == 0) then
            call MPI_Send(every(2, :), long, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD)
        else
            call MPI_Recv(in, long, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, status)
            call check(1)
        end if
    end if
    print '(a, i0, a, es24.16)', 'rank ', rank, ': ', total
    call MPI_Finalize()
contains
    subroutine fill
        integer :: at
        out = (/ (sin(0.01d0 * at + 0.002d0 * turn) + rank, at = 1, n) /)
        in = 0
    end subroutine
    subroutine check(tag)
        integer, intent(in) :: tag
        integer :: at
        call MPI_Get_count(status, MPI_DOUBLE_PRECISION, got)
        if (got /= n .or. status%MPI_SOURCE /= peer .or. status%MPI_TAG /= tag) stop 3
        if (any(in /= (/ (sin(0.01d0 * at + 0.002d0 * turn) + peer, at = 1, n) /))) stop 4
        total = total + sum(in)
    end subroutine
end program
