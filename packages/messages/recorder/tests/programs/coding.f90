! Two ranks exchange messages in every way of the module mpi that is coded, look at what they got,
! and print a sum of it: the same with coding and without. With an argument they do one thing more.
program coding
    use mpi
    implicit none
    integer, parameter :: n = 2500, rounds = 8
    integer :: rank, peer, code, turn, comm, copy, requests(8), status(MPI_STATUS_SIZE)
    integer :: all(MPI_STATUS_SIZE, 8), indices(8), count, index, left, kind, i
    integer(kind=MPI_ADDRESS_KIND) :: place
    logical :: flag
    double precision :: out(n, 4), in(2 * n, 4), total
    character(len=16) :: what
    call MPI_INIT(code)
    call MPI_COMM_RANK(MPI_COMM_WORLD, rank, code)
    peer = 1 - rank
    total = 0
    do turn = 1, rounds
        comm = MPI_COMM_WORLD
        if (mod(turn, 2) == 0) then
            ! The handle of an earlier one, which was given up, may come back.
            call MPI_COMM_DUP(MPI_COMM_WORLD, copy, code)
            comm = copy
        end if
        call blocking
        call completed
        call scattered
        if (comm /= MPI_COMM_WORLD) call MPI_COMM_FREE(copy, code)
    end do
    call get_command_argument(1, what)
    comm = MPI_COMM_WORLD
    if (what == 'free') call given_up
    if (what == 'probe') call looked_at
    print '(a, i0, a, es24.16)', 'rank ', rank, ': ', total
    call MPI_FINALIZE(code)
contains
    subroutine blocking
        call fill(1)
        if (rank == 0) then
            call MPI_SEND(out, n, MPI_DOUBLE_PRECISION, peer, 1, comm, code)
            call MPI_RECV(in, 2 * n, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, status, code)
        else
            call MPI_RECV(in, n, MPI_DOUBLE_PRECISION, peer, 1, comm, status, code)
            call MPI_SSEND(out, n, MPI_DOUBLE_PRECISION, peer, 1, comm, code)
        end if
        call check(1, status, 1, n)
        call MPI_SENDRECV(out, n, MPI_DOUBLE_PRECISION, peer, 2, in, n, MPI_DOUBLE_PRECISION, peer, 2, &
            comm, status, code)
        call check(1, status, 2, n)
        call MPI_SENDRECV_REPLACE(out, n, MPI_DOUBLE_PRECISION, peer, 2, MPI_ANY_SOURCE, 2, comm, &
            MPI_STATUS_IGNORE, code)
        in(1:n, 1) = out(:, 1)
        call check(1, status, 2, n)
    end subroutine

    ! Each way of waiting, some of them for messages of a channel in another order.
    subroutine completed
        do i = 1, 4
            call MPI_IRECV(in(:, i), 2 * n, MPI_DOUBLE_PRECISION, peer, 3, comm, requests(i), code)
        end do
        do i = 1, 4
            call fill(i)
            call MPI_ISEND(out(:, i), n, MPI_DOUBLE_PRECISION, peer, 3, comm, requests(4 + i), code)
        end do
        left = 4
        select case (mod(turn, 7))
        case (0)
            do i = 4, 1, -1
                call MPI_WAIT(requests(i), status, code)
                call check(i, status, 3, n)
            end do
        case (1)
            call MPI_WAITALL(8, requests, all, code)
            do i = 1, 4
                call check(i, all(:, i), 3, n)
            end do
        case (2)
            do while (left > 0)
                call MPI_WAITANY(4, requests, index, status, code)
                call check(index, status, 3, n)
                left = left - 1
            end do
            call MPI_WAITANY(4, requests, index, status, code)
            if (index > 0) call wrong(1)
        case (3)
            do while (left > 0)
                call MPI_WAITSOME(4, requests, count, indices, all, code)
                do i = 1, count
                    call check(indices(i), all(:, i), 3, n)
                end do
                left = left - count
            end do
        case (4)
            flag = .false.
            do while (.not. flag)
                call MPI_TESTALL(4, requests, flag, MPI_STATUSES_IGNORE, code)
            end do
        case (5)
            do while (left > 0)
                call MPI_TESTANY(4, requests, index, flag, status, code)
                if (flag) left = left - 1
                if (flag) call check(index, status, 3, n)
            end do
        case default
            do i = 1, 4
                flag = .false.
                do while (.not. flag)
                    call MPI_REQUEST_GET_STATUS(requests(i), flag, status, code)
                end do
                if (requests(i) == MPI_REQUEST_NULL) call wrong(2)
                call check(i, status, 3, n)
                flag = .false.
                do while (.not. flag)
                    call MPI_TEST(requests(i), flag, status, code)
                end do
            end do
        end select
        call MPI_WAITALL(4, requests(5:8), MPI_STATUSES_IGNORE, code)
        if (any(requests /= MPI_REQUEST_NULL)) call wrong(3)
        total = total + sum(in(1:n, :))
    end subroutine

    ! Values with gaps, by a datatype whose handle an earlier, other one had, and from MPI_BOTTOM.
    subroutine scattered
        call MPI_TYPE_VECTOR(n / 2, 1, mod(turn, 3) + 2, MPI_DOUBLE_PRECISION, kind, code)
        call MPI_TYPE_COMMIT(kind, code)
        in = -1
        call fill(1)
        call MPI_IRECV(in, 1, kind, peer, 4, comm, requests(1), code)
        call MPI_TYPE_FREE(kind, code)
        call MPI_GET_ADDRESS(out, place, code)
        call MPI_TYPE_CREATE_HINDEXED(1, (/ n / 2 /), (/ place /), MPI_DOUBLE_PRECISION, kind, code)
        call MPI_TYPE_COMMIT(kind, code)
        call MPI_SEND(MPI_BOTTOM, 1, kind, peer, 4, comm, code)
        call MPI_TYPE_FREE(kind, code)
        call MPI_WAIT(requests(1), status, code)
        do i = 1, n / 2
            if (in((i - 1) * (mod(turn, 3) + 2) + 1, 1) /= value_of(i, 1)) call wrong(4)
        end do
    end subroutine

    ! A request that is given up: its message arrives all the same.
    subroutine given_up
        call fill(1)
        call MPI_IRECV(in, n, MPI_DOUBLE_PRECISION, peer, 3, comm, requests(1), code)
        call MPI_ISEND(out, n, MPI_DOUBLE_PRECISION, peer, 3, comm, requests(2), code)
        call MPI_REQUEST_FREE(requests(2), code)
        if (requests(2) /= MPI_REQUEST_NULL) call wrong(5)
        call MPI_WAIT(requests(1), status, code)
        call check(1, status, 3, n)
    end subroutine

    subroutine looked_at
        call fill(1)
        if (rank == 0) then
            call MPI_SEND(out, n, MPI_DOUBLE_PRECISION, peer, 1, comm, code)
        else
            call MPI_PROBE(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE, code)
            call MPI_RECV(in, n, MPI_DOUBLE_PRECISION, peer, 1, comm, status, code)
        end if
    end subroutine

    subroutine fill(which)
        integer, intent(in) :: which
        integer :: at
        do at = 1, n
            out(at, which) = sin(0.01d0 * at + 0.002d0 * (turn + which)) + rank
        end do
    end subroutine

    double precision function value_of(at, which)
        integer, intent(in) :: at, which
        value_of = sin(0.01d0 * at + 0.002d0 * (turn + which)) + peer
    end function

    subroutine check(which, state, tag, length)
        integer, intent(in) :: which, state(MPI_STATUS_SIZE), tag, length
        integer :: at, arrived
        call MPI_GET_COUNT(state, MPI_DOUBLE_PRECISION, arrived, code)
        if (arrived /= length .or. state(MPI_SOURCE) /= peer .or. state(MPI_TAG) /= tag) call wrong(6)
        do at = 1, length
            if (in(at, which) /= value_of(at, which)) call wrong(7)
        end do
        total = total + sum(in(1:length, which))
    end subroutine

    subroutine wrong(what)
        integer, intent(in) :: what
        print *, 'rank', rank, 'round', turn, 'is wrong at', what
        call MPI_ABORT(MPI_COMM_WORLD, 3, code)
    end subroutine
end program
