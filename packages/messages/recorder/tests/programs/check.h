/* What ends a test program that has found something wrong; `rank` is that of the process. */
#include <mpi.h>
#include <stdio.h>

static int rank;

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("rank %d, line %d: %s\n", rank, __LINE__, #what);                               \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                          \
        }                                                                                          \
    } while (0)
