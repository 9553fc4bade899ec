! Sends with the module mpi_f08, with the code of errors and without.
program new
    use mpi_f08
    implicit none
    integer :: rank, peer, code, turn
    double precision :: out(64), in(64)
    type(MPI_Request) :: request(2)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    peer = 1 - rank
    out = (/ (rank * 1000 + turn, turn = 1, 64) /)
    call MPI_Sendrecv(out, 64, MPI_DOUBLE_PRECISION, peer, 1, in, 64, MPI_DOUBLE_PRECISION, peer, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    if (any(in /= out - (rank - peer) * 1000)) stop 3
    do turn = 1, 3
        call MPI_Irecv(in, 64, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, request(1), code)
        call MPI_Isend(out, 64, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, request(2))
        call MPI_Waitall(2, request, MPI_STATUSES_IGNORE, code)
    end do
    call MPI_Allreduce(out, in, 64, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    if (rank == 0) print '(a)', 'new: all right'
    call MPI_Finalize()
end program
