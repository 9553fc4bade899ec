/* A rank that makes no calls any more is named by those that wait for it. argv: the configuration,
   the rank. With four ranks. */

#include <mpi.h>

#include "check.h"

int main(int argc, char **argv) {
    int rank, size, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(VELOC_Init(MPI_COMM_WORLD, argv[1]));
    const int absent = atoi(argv[2]);
    if (rank != absent) {
        CHECK(VELOC_Restart_test("any", 0) == VELOC_FAILURE);
        MPI_Send(&word, 1, MPI_INT, absent, 0, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, absent, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int other = 0; other < size; other++) {
            if (other != rank) {
                MPI_Recv(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        puts("late: all have waited");
        fflush(stdout);
        for (int other = 0; other < size; other++) {
            if (other != rank) {
                MPI_Send(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
            }
        }
    }
    /* A collective call of some ranks is on its way for ever: MPI could not be finalised. */
    _exit(0);
}
