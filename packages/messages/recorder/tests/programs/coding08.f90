! Two ranks exchange messages by the module mpi_f08, whose calls may leave out the error code.
program coding08
    use mpi_f08
    implicit none
    integer, parameter :: n = 2500
    integer :: rank, peer, turn, index, count, provided
    logical :: flag
    type(MPI_Comm) :: copy
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: status
    double precision :: out(n), in(n), total
    call MPI_Init_thread(MPI_THREAD_SINGLE, provided)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    peer = 1 - rank
    total = 0
    do turn = 1, 30
        call MPI_Comm_dup(MPI_COMM_WORLD, copy)
        out = (/ (sin(0.01d0 * index + 0.002d0 * turn) + rank, index = 1, n) /)
        call MPI_Irecv(in, n, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, requests(1))
        call MPI_Isend(out, n, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, requests(2))
        flag = .false.
        do while (.not. flag)
            call MPI_Test(requests(1), flag, status)
        end do
        if (requests(1) /= MPI_REQUEST_NULL) stop 3
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
        call MPI_Get_count(status, MPI_DOUBLE_PRECISION, count)
        if (count /= n .or. status%MPI_SOURCE /= peer .or. status%MPI_TAG /= 1) stop 4
        if (any(in /= (/ (sin(0.01d0 * index + 0.002d0 * turn) + peer, index = 1, n) /))) stop 5
        total = total + sum(in)
        call MPI_Comm_free(copy)
    end do
    print '(a, i0, a, es24.16)', 'rank ', rank, ': ', total
    call MPI_Finalize()
end program
