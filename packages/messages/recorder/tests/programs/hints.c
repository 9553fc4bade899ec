/* Two ranks exchange messages on two communicators. By the argument the program allows the messages
 * of the second to overtake each other: when it is made (dup), before its first message (set), or
 * after its first ones (late). */
#include <mpi.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 2500, ROUNDS = 20 };

int main(int argc, char **argv)
{
    static double out[N], in[N];
    int rank, count;
    double sum = 0;
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "mpi_assert_allow_overtaking", "true");
    MPI_Comm loose, strict;
    MPI_Comm_dup(MPI_COMM_WORLD, &strict);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, strcmp(how, "dup") ? MPI_INFO_NULL : hints, &loose);
    if (strcmp(how, "set") == 0) {
        MPI_Comm_set_info(loose, hints);
    }
    for (int step = 0; step < ROUNDS; step++) {
        if (step == ROUNDS / 2 && strcmp(how, "late") == 0) {
            MPI_Comm_set_info(loose, hints);
        }
        for (int tag = 1; tag <= 2; tag++) {
            MPI_Status status;
            for (int i = 0; i < N; i++) {
                out[i] = sin(0.01 * i + 0.002 * step + tag) + rank;
            }
            MPI_Sendrecv(out, N, MPI_DOUBLE, 1 - rank, tag, in, N, MPI_DOUBLE, 1 - rank, tag,
                         tag == 1 ? strict : loose, &status);
            MPI_Get_count(&status, MPI_DOUBLE, &count);
            for (int i = 0; i < N; i++) {
                if (count != N || in[i] != sin(0.01 * i + 0.002 * step + tag) + (1 - rank)) {
                    MPI_Abort(MPI_COMM_WORLD, 3);
                }
                sum += in[i];
            }
        }
    }
    printf("rank %d: %.17g\n", rank, sum);
    MPI_Info_free(&hints);
    MPI_Comm_free(&loose);
    MPI_Comm_free(&strict);
    MPI_Finalize();
    return 0;
}
