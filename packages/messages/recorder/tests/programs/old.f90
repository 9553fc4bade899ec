! Sends with the module mpi.
program old
    use mpi
    implicit none
    integer :: rank, peer, code, turn, request(2), kind, status(MPI_STATUS_SIZE), copy, given(4)
    integer :: all(4), index
    integer(kind=MPI_ADDRESS_KIND) :: place
    double precision :: out(64), in(64)
    double precision :: matrix(2, 64)
    call MPI_INIT(code)
    call MPI_COMM_RANK(MPI_COMM_WORLD, rank, code)
    peer = 1 - rank
    call fill(out, 1)
    call MPI_SENDRECV(out, 64, MPI_DOUBLE_PRECISION, peer, 1, in, 64, MPI_DOUBLE_PRECISION, peer, 1, &
        MPI_COMM_WORLD, status, code)
    call check(in, 1)
    call fill(out, 2)
    call MPI_IRECV(in, 64, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, request(1), code)
    call MPI_ISEND(out, 64, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, request(2), code)
    call MPI_WAITANY(1, request, index, MPI_STATUS_IGNORE, code)
    call MPI_WAIT(request(2), MPI_STATUS_IGNORE, code)
    if (index /= 1) stop 4
    call check(in, 2)
    call MPI_RECV_INIT(in, 64, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, request(1), code)
    call MPI_SEND_INIT(out, 64, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, request(2), code)
    do turn = 1, 3
        call fill(out, 3)
        call MPI_STARTALL(2, request, code)
        call MPI_WAITALL(2, request, MPI_STATUSES_IGNORE, code)
        call check(in, 3)
    end do
    call MPI_REQUEST_FREE(request(1), code)
    call MPI_REQUEST_FREE(request(2), code)
    call MPI_COMM_DUP(MPI_COMM_WORLD, copy, code)
    matrix = -1
    call fill(out, 4)
    matrix(1, :) = out
    call MPI_TYPE_VECTOR(64, 1, 2, MPI_DOUBLE_PRECISION, kind, code)
    call MPI_TYPE_COMMIT(kind, code)
    call MPI_SENDRECV(matrix, 1, kind, peer, 4, in, 64, MPI_DOUBLE_PRECISION, peer, 4, copy, status, code)
    call check(in, 4)
    call MPI_TYPE_FREE(kind, code)
    call fill(out, 5)
    call MPI_GET_ADDRESS(out, place, code)
    call MPI_TYPE_CREATE_HINDEXED(1, (/ 64 /), (/ place /), MPI_DOUBLE_PRECISION, kind, code)
    call MPI_TYPE_COMMIT(kind, code)
    call MPI_SENDRECV(MPI_BOTTOM, 1, kind, peer, 5, in, 64, MPI_DOUBLE_PRECISION, peer, 5, copy, status, &
        code)
    call check(in, 5)
    given = rank
    call MPI_ALLREDUCE(given, all, 4, MPI_INTEGER, MPI_SUM, copy, code)
    call MPI_ALLREDUCE(MPI_IN_PLACE, given, 4, MPI_INTEGER, MPI_SUM, copy, code)
    if (any(all /= given)) stop 5
    call MPI_COMM_FREE(copy, code)
    if (rank == 0) print '(a)', 'old: all right'
    call MPI_FINALIZE(code)
contains
    subroutine fill(values, tag)
        double precision, intent(out) :: values(64)
        integer, intent(in) :: tag
        integer :: i
        values = (/ (tag * 100 + rank * 1000 + i, i = 1, 64) /)
    end subroutine
    subroutine check(values, tag)
        double precision, intent(in) :: values(64)
        integer, intent(in) :: tag
        integer :: i
        do i = 1, 64
            if (values(i) /= tag * 100 + peer * 1000 + i) stop 3
        end do
    end subroutine
end program
