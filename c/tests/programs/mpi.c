/* The ranks of MPI, in C and in C++: parts that go to partners and come back, and a rank that does
   not come. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unspool_mpi.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    unspool_last_error());                                                         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == UNSPOOL_OK)

/* More than one piece. */
enum { CELLS = 1200000 };

static unspool_checkpointer *opened(const char *path, const unspool_ranks *ranks,
                                    const char *timeout) {
    unspool_options *options = NULL;
    unspool_checkpointer *checkpointer = NULL;
    OK(unspool_options_new(&options));
    OK(unspool_options_set(options, "device", "cpu"));
    OK(unspool_options_set(options, "host_memory", "32MiB"));
    OK(unspool_options_set(options, "every", "1"));
    OK(unspool_options_set(options, "partner", "1"));
    OK(unspool_options_set(options, "timeout", timeout));
    OK(unspool_checkpointer_open(path, options, ranks, &checkpointer));
    unspool_options_free(options);
    return checkpointer;
}

static double value(int64_t step, int rank, int64_t cell) {
    return (double)(step * cell + rank);
}

/* Saves three checkpoints, the last of which is at the partners then. */
static void saves(const char *path, const unspool_ranks *ranks, int rank, double *u) {
    const int64_t shape = CELLS;
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, &shape};
    unspool_checkpointer *checkpointer = opened(path, ranks, "60s");
    for (int64_t step = 1; step <= 3; step++) {
        int due = 0;
        for (int64_t cell = 0; cell < CELLS; cell++) {
            u[cell] = value(step, rank, cell);
        }
        OK(unspool_checkpointer_due(checkpointer, step, &due));
        CHECK(due);
        OK(unspool_checkpointer_save(checkpointer, step, &state, 1, NULL, NULL));
    }
    OK(unspool_checkpointer_close(checkpointer, 60));
    unspool_checkpointer_free(checkpointer);
}

/* Goes on after the disk of a rank was lost. */
static void restores(const char *path, const unspool_ranks *ranks, int rank, double *u) {
    const int64_t shape = CELLS;
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, &shape};
    unspool_checkpointer *checkpointer = opened(path, ranks, "60s");
    int64_t step = -1;
    OK(unspool_checkpointer_restore(checkpointer, &state, 1, NULL, &step));
    CHECK(step == 3 && u[0] == value(3, rank, 0) && u[CELLS - 1] == value(3, rank, CELLS - 1));
    OK(unspool_checkpointer_close(checkpointer, 60));
    unspool_checkpointer_free(checkpointer);
}

/* Rank `away` opens, and then does not come: all others return and name it. */
static void misses(const char *path, const unspool_ranks *ranks, int rank, int away) {
    unspool_checkpointer *checkpointer = opened(path, ranks, "1s");
    char expected[40];
    int64_t latest = 0;
    snprintf(expected, sizeof expected, " rank %d has not answered", away);
    if (rank == away) {
        for (unsigned other = 1; other < ranks->size; other++) {
            MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        printf("mpi: all right\n");
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 0);
    }
    CHECK(unspool_checkpointer_latest(checkpointer, &latest) == UNSPOOL_TIMEOUT);
    CHECK(strstr(unspool_last_error(), expected) != NULL);
    CHECK(unspool_checkpointer_latest(checkpointer, &latest) == UNSPOOL_TIMEOUT);
    MPI_Send(NULL, 0, MPI_BYTE, away, 1, MPI_COMM_WORLD);
    /* Rank `away` ends the job. */
    MPI_Recv(NULL, 0, MPI_BYTE, away, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    double *u = (double *)malloc(CELLS * sizeof *u);
    unspool_mpi ranks;
    int rank = 0;
    MPI_Init(&argc, &argv);
    CHECK(argc >= 3 && u != NULL);
    CHECK(unspool_mpi_init(&ranks, MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(argv[2], "saves") == 0) {
        saves(argv[1], &ranks.ranks, rank, u);
    } else if (strcmp(argv[2], "restores") == 0) {
        restores(argv[1], &ranks.ranks, rank, u);
    } else {
        misses(argv[1], &ranks.ranks, rank, atoi(argv[2]));
    }
    free(u);
    CHECK(unspool_mpi_free(&ranks) == MPI_SUCCESS);
    if (rank == 0) {
        printf("mpi: all right\n");
    }
    return MPI_Finalize();
}
