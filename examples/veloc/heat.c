/* The heat equation over the ranks of MPI, with VELOC's interface: the run goes on from its last
   checkpoint, from scratch or, when that is gone, from persistent.

   mpicc -o heat heat.c -lveloc-client
   mpirun -n 2 ./heat veloc.cfg 300          runs to step 300, or goes on from the last checkpoint
   mpirun -n 2 ./heat veloc.cfg 300 200      ends as a job that fails after step 200 does */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "include/veloc.h"

enum { CELLS = 4000, EVERY = 25 };

static void check(int code, const char *what) {
    if (code != VELOC_SUCCESS) {
        fprintf(stderr, "%s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* One step on this rank's cells, which have a cell of each neighbour beside them. */
static void advance(double *u, double *next, int rank, int size) {
    const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    const int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[CELLS + 1], 1, MPI_DOUBLE, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[CELLS], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 1; i <= CELLS; i++) {
        next[i] = u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1]);
    }
    for (int i = 1; i <= CELLS; i++) {
        u[i] = next[i];
    }
}

/* A number that tells fields apart by every bit. */
static uint64_t fingerprint(const double *u) {
    const unsigned char *bytes = (const unsigned char *)u;
    uint64_t mine = 1469598103934665603u, all = 0;
    for (size_t i = sizeof *u; i < (CELLS + 1) * sizeof *u; i++) {
        mine = (mine ^ bytes[i]) * 1099511628211u;
    }
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv) {
    static double u[CELLS + 2], next[CELLS + 2];
    int rank, size, step = 0, found;
    MPI_Init(&argc, &argv);
    if (argc < 3) {
        fprintf(stderr, "usage: heat CONFIG STEPS [FAIL-AFTER]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int steps = atoi(argv[2]), fails = argc > 3 ? atoi(argv[3]) : -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(VELOC_Init(MPI_COMM_WORLD, argv[1]), "VELOC_Init");
    for (int i = 1; i <= CELLS; i++) {
        u[i] = (double)((rank * CELLS + i) % 97);
    }
    check(VELOC_Mem_protect(0, &step, 1, sizeof step), "VELOC_Mem_protect");
    check(VELOC_Mem_protect(1, u, CELLS + 2, sizeof *u), "VELOC_Mem_protect");

    found = VELOC_Restart_test("heat", 0);
    if (found > 0) {
        check(VELOC_Restart("heat", found), "VELOC_Restart");
        if (rank == 0) {
            printf("goes on from step %d\n", step);
        }
    }
    while (step < steps) {
        advance(u, next, rank, size);
        step++;
        if (step % EVERY == 0) {
            check(VELOC_Checkpoint_wait(), "VELOC_Checkpoint_wait");
            check(VELOC_Checkpoint("heat", step), "VELOC_Checkpoint");
        }
        if (step == fails && rank == 0) {
            MPI_Abort(MPI_COMM_WORLD, 9);
            /* MPICH may return from that, and end its ranks a moment later. */
            _Exit(9);
        }
    }
    const uint64_t field = fingerprint(u);
    if (rank == 0) {
        printf("step %d: %016llx\n", step, (unsigned long long)field);
    }
    check(VELOC_Finalize(1), "VELOC_Finalize");
    MPI_Finalize();
    return 0;
}
