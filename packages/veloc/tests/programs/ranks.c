/* What ranks find out together. argv: the configuration. With two ranks. */

#include <mpi.h>

#include "check.h"

int main(int argc, char **argv) {
    int rank, value;
    MPI_Comm others;
    CHECK(VELOC_Init(MPI_COMM_WORLD, "x") == VELOC_FAILURE); /* MPI is not there yet */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* A communicator that the program has made: a handle of another kind than MPI_COMM_WORLD. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &others);
    MPI_Comm_rank(others, &rank);
    NOT(VELOC_Init(others, rank == 1 ? "/nowhere/veloc.cfg" : argv[1]));
    OK(VELOC_Init(others, argv[1]));
    OK(VELOC_Mem_protect(0, &value, 1, sizeof value));
    CHECK(VELOC_Restart_test("ranks", 0) == -1);
    for (int version = 1; version <= 3; version++) {
        value = 10 * version + rank;
        OK(VELOC_Checkpoint("ranks", version));
    }
    if (rank == 1) {
        /* The other one does not have it. */
        value = 41;
        OK(VELOC_Checkpoint("ranks", 4));
        /* Names are numbered in another order on this rank. */
        OK(VELOC_Checkpoint("mine", 1));
    }
    value = 10 * 7 + rank;
    OK(VELOC_Checkpoint("late", 7));
    CHECK(VELOC_Restart_test("ranks", 0) == 3);
    CHECK(VELOC_Restart_test("ranks", 2) == 2);
    CHECK(VELOC_Restart_test("mine", 0) == -1);
    CHECK(VELOC_Restart_test("late", 0) == 7);
    OK(VELOC_Restart("ranks", 3));
    CHECK(value == 30 + rank);
    OK(VELOC_Finalize(1));
    MPI_Barrier(MPI_COMM_WORLD);
    /* Nothing is left in the scratch of one rank. */
    OK(VELOC_Init(others, argv[1]));
    OK(VELOC_Mem_protect(0, &value, 1, sizeof value));
    if (rank == 0) {
        OK(VELOC_Cleanup("ranks"));
    }
    const int found = VELOC_Restart_test("ranks", 0);
    CHECK(found == atoi(argv[2]));
    if (found > 0) {
        OK(VELOC_Restart("ranks", found));
        CHECK(value == 10 * found + rank);
    }
    if (found == 3) {
        /* What one rank has saved in a later run is not mixed with what another one has. */
        if (rank == 0) {
            value = 999;
            OK(VELOC_Checkpoint("ranks", 3));
            OK(VELOC_Checkpoint_wait());
        }
        CHECK(VELOC_Restart_test("ranks", 0) == 3);
        OK(VELOC_Restart("ranks", 3));
        CHECK(value == 30 + rank);
    }
    /* Saved again: what is older than what was agreed on is not taken for it. */
    value = 100 + rank;
    OK(VELOC_Checkpoint("ranks", 3));
    value = 0;
    OK(VELOC_Restart("ranks", 3));
    CHECK(value == 100 + rank);
    OK(VELOC_Finalize(1));
    MPI_Comm_free(&others);
    MPI_Finalize();
    if (rank == 0) {
        puts("ranks: all right");
    }
    return 0;
}
