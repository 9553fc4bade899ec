/* What the functions of `arrays08.f90` do, by those of C past the wrappers, as Open MPI does it. An
 * array is a descriptor of gfortran. */
#include <mpi.h>
#include <stddef.h>

/* The beginning of the descriptor of an array with one dimension. */
typedef struct {
    void *first;
    ptrdiff_t before[4], stride;
} Array;

static void tell(int *to, int code)
{
    if (to) {
        *to = code;
    }
}

void mpi_send_c_f08ts_(Array *buf, MPI_Count *count, MPI_Fint *of, int *dest, int *tag,
                       MPI_Fint *comm, int *code)
{
    MPI_Datatype every;
    PMPI_Type_vector(*count, 1, buf->stride, MPI_Type_f2c(*of), &every);
    PMPI_Type_commit(&every);
    tell(code, PMPI_Send(buf->first, 1, every, *dest, *tag, MPI_Comm_f2c(*comm)));
    PMPI_Type_free(&every);
}

void mpi_isend_c_f08ts_(Array *buf, MPI_Count *count, MPI_Fint *of, int *dest, int *tag,
                        MPI_Fint *comm, MPI_Fint *request, int *code)
{
    MPI_Request begun;
    tell(code, PMPI_Isend(buf->first, *count, MPI_Type_f2c(*of), *dest, *tag, MPI_Comm_f2c(*comm),
                          &begun));
    *request = MPI_Request_c2f(begun);
}

void mpi_recv_c_f08ts_(Array *buf, MPI_Count *count, MPI_Fint *of, int *source, int *tag,
                       MPI_Fint *comm, MPI_Status *status, int *code)
{
    tell(code, PMPI_Recv(buf->first, *count, MPI_Type_f2c(*of), *source, *tag, MPI_Comm_f2c(*comm),
                         status));
}

void mpi_irecv_c_f08ts_(Array *buf, MPI_Count *count, MPI_Fint *of, int *source, int *tag,
                        MPI_Fint *comm, MPI_Fint *request, int *code)
{
    MPI_Request begun;
    tell(code, PMPI_Irecv(buf->first, *count, MPI_Type_f2c(*of), *source, *tag, MPI_Comm_f2c(*comm),
                          &begun));
    *request = MPI_Request_c2f(begun);
}

void mpi_sendrecv_c_f08ts_(Array *out, MPI_Count *sent, MPI_Fint *of_sent, int *dest, int *tag,
                           Array *in, MPI_Count *got, MPI_Fint *of_got, int *source, int *got_tag,
                           MPI_Fint *comm, MPI_Status *status, int *code)
{
    tell(code, PMPI_Sendrecv(out->first, *sent, MPI_Type_f2c(*of_sent), *dest, *tag, in->first,
                             *got, MPI_Type_f2c(*of_got), *source, *got_tag, MPI_Comm_f2c(*comm),
                             status));
}

void mpi_allreduce_c_f08ts_(Array *own, Array *all, MPI_Count *count, MPI_Fint *of, MPI_Fint *op,
                            MPI_Fint *comm, int *code)
{
    tell(code, PMPI_Allreduce(own->first, all->first, *count, MPI_Type_f2c(*of), MPI_Op_f2c(*op),
                              MPI_Comm_f2c(*comm)));
}
