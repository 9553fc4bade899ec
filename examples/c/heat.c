/* A heat equation over the ranks of MPI that goes on where it was when it was ended, by a signal, a
   limit or a broken node.

   mpicc -std=c99 heat.c $(pkg-config --cflags --libs unspool) -o heat
   mpirun -n 4 ./heat FOLDER [STEPS] [STEP AT WHICH RANK 0 ABORTS] */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unspool_mpi.h>

enum { CELLS = 1000 };

static unspool_checkpointer *checkpointer;

static void check(int code) {
    if (code != UNSPOOL_OK) {
        fprintf(stderr, "%s\n", unspool_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void on_signal(int number) {
    (void)number;
    unspool_checkpointer_stop(checkpointer);
}

/* One step of the part of this rank, with the cells of its neighbours at both ends. */
static void advance(double *u, int rank, int size) {
    double next[CELLS + 2];
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[CELLS + 1], 1, MPI_DOUBLE, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[CELLS], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 1; i <= CELLS; i++) {
        next[i] = u[i] + 0.1 * (u[i - 1] - 2 * u[i] + u[i + 1]) - 0.01 * u[i] * u[i] * u[i];
    }
    memcpy(&u[1], &next[1], CELLS * sizeof *u);
}

int main(int argc, char **argv) {
    const int64_t steps = argc > 2 ? atoll(argv[2]) : 1000;
    const int64_t abort_at = argc > 3 ? atoll(argv[3]) : -1;
    const int64_t shape[1] = {CELLS + 2};
    static double u[CELLS + 2];
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, shape};
    unspool_options *options = NULL;
    unspool_mpi ranks;
    int64_t step = -1;
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [STEPS] [STEP AT WHICH RANK 0 ABORTS]\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    check(unspool_options_new(&options));
    check(unspool_options_set(options, "host_memory", "16MiB"));
    check(unspool_options_set(options, "every", "50 steps"));
    unspool_mpi_init(&ranks, MPI_COMM_WORLD);
    check(unspool_checkpointer_open(argv[1], options, &ranks.ranks, &checkpointer));
    unspool_options_free(options);
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);

    check(unspool_checkpointer_restore(checkpointer, &state, 1, NULL, &step));
    if (step < 0) {
        step = 0;
        for (int i = 1; i <= CELLS; i++) {
            u[i] = rank == 0 && i < CELLS / 2 ? 1.0 : 0.0;
        }
    } else if (rank == 0) {
        printf("goes on from step %lld\n", (long long)step);
    }
    while (step < steps && !unspool_checkpointer_stopping(checkpointer)) {
        int due = 0;
        advance(u, rank, size);
        step++;
        check(unspool_checkpointer_due(checkpointer, step, &due));
        if (due) {
            check(unspool_checkpointer_save(checkpointer, step, &state, 1, NULL, NULL));
        }
        if (step == abort_at && rank == 0) {
            MPI_Abort(MPI_COMM_WORLD, 3);
            /* MPICH may return from that, and end its ranks a moment later. */
            _Exit(3);
        }
    }
    double sum = 0, all = 0;
    for (int i = 1; i <= CELLS; i++) {
        sum += u[i];
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("step %lld: %.17g\n", (long long)step, all);
    }
    check(unspool_checkpointer_close(checkpointer, 0));
    unspool_checkpointer_free(checkpointer);
    unspool_mpi_free(&ranks);
    MPI_Finalize();
    return 0;
}
