/* The ranks of a communicator of MPI for the Fortran module unspool. Compile it with mpicc, and
   link it with the program: mpicc -c unspool_mpi.c */

#include <unspool_mpi.h>

/* `comm` is a handle of Fortran. Null when MPI or the system refuses. */
unspool_ranks *unspool_mpi_ranks(int comm) {
    unspool_mpi *mpi = malloc(sizeof *mpi);
    if (mpi == NULL) {
        return NULL;
    }
    if (unspool_mpi_init(mpi, MPI_Comm_f2c((MPI_Fint)comm)) != MPI_SUCCESS) {
        free(mpi);
        return NULL;
    }
    return &mpi->ranks;
}

void unspool_mpi_ranks_free(unspool_ranks *ranks) {
    if (ranks != NULL) {
        unspool_mpi *mpi = ranks->context;
        unspool_mpi_free(mpi);
        free(mpi);
    }
}
