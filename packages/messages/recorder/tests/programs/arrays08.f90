! The functions with counts of 64 bits that Open MPI has in its module mpi_f08 from version 6 on, for a
! program that is compiled with an earlier one. `arrays08.c` does what they do.
module mpi_f08_arrays
    use mpi_f08
    implicit none
    interface MPI_Send
        subroutine MPI_Send_c_f08ts(buf, count, datatype, dest, tag, comm, ierror)
            use mpi_f08
            type(*), dimension(..), intent(in) :: buf
            integer(kind=MPI_COUNT_KIND), intent(in) :: count
            type(MPI_Datatype), intent(in) :: datatype
            integer, intent(in) :: dest, tag
            type(MPI_Comm), intent(in) :: comm
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
    interface MPI_Isend
        subroutine MPI_Isend_c_f08ts(buf, count, datatype, dest, tag, comm, request, ierror)
            use mpi_f08
            type(*), dimension(..), intent(in) :: buf
            integer(kind=MPI_COUNT_KIND), intent(in) :: count
            type(MPI_Datatype), intent(in) :: datatype
            integer, intent(in) :: dest, tag
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Request), intent(out) :: request
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
    interface MPI_Recv
        subroutine MPI_Recv_c_f08ts(buf, count, datatype, source, tag, comm, status, ierror)
            use mpi_f08
            type(*), dimension(..) :: buf
            integer(kind=MPI_COUNT_KIND), intent(in) :: count
            type(MPI_Datatype), intent(in) :: datatype
            integer, intent(in) :: source, tag
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Status) :: status
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
    interface MPI_Irecv
        subroutine MPI_Irecv_c_f08ts(buf, count, datatype, source, tag, comm, request, ierror)
            use mpi_f08
            type(*), dimension(..) :: buf
            integer(kind=MPI_COUNT_KIND), intent(in) :: count
            type(MPI_Datatype), intent(in) :: datatype
            integer, intent(in) :: source, tag
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Request), intent(out) :: request
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
    interface MPI_Sendrecv
        subroutine MPI_Sendrecv_c_f08ts(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, &
                recvtype, source, recvtag, comm, status, ierror)
            use mpi_f08
            type(*), dimension(..), intent(in) :: sendbuf
            type(*), dimension(..) :: recvbuf
            integer(kind=MPI_COUNT_KIND), intent(in) :: sendcount, recvcount
            type(MPI_Datatype), intent(in) :: sendtype, recvtype
            integer, intent(in) :: dest, sendtag, source, recvtag
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Status) :: status
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
    interface MPI_Allreduce
        subroutine MPI_Allreduce_c_f08ts(sendbuf, recvbuf, count, datatype, op, comm, ierror)
            use mpi_f08
            type(*), dimension(..), intent(in) :: sendbuf
            type(*), dimension(..) :: recvbuf
            integer(kind=MPI_COUNT_KIND), intent(in) :: count
            type(MPI_Datatype), intent(in) :: datatype
            type(MPI_Op), intent(in) :: op
            type(MPI_Comm), intent(in) :: comm
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
end module
