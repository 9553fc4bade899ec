/* Sends messages of a known number, and then one rank ends in the way that is asked for. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, values[1000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int turn = 0; turn < 100; turn++) {
        for (int i = 0; i < 1000; i++) {
            values[i] = turn + i / 100;
        }
        MPI_Sendrecv_replace(values, 1000, MPI_INT, 1 - rank, 5, 1 - rank, 5, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        if (strcmp(argv[1], "segv") == 0) {
            raise(SIGSEGV);
        } else if (strcmp(argv[1], "kill") == 0) {
            raise(SIGKILL);
        } else if (strcmp(argv[1], "abort") == 0) {
            MPI_Abort(MPI_COMM_WORLD, 7);
        }
    }
    MPI_Recv(values, 1, MPI_INT, 1 - rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
