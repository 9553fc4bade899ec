/* Two ranks exchange smooth values with two tags, one of them NaN, and say how near to what was
 * sent that is which they got. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4000, ROUNDS = 30 };

static double out[N], in[N];

static double value(int i, int rank, int step)
{
    return i == 77 ? NAN : sin(0.01 * i + 0.002 * step + rank);
}

/* The largest error of the values that have arrived, as a part of their range. */
static double error(int other, int step)
{
    double least = 1, most = -1, worst = 0;
    for (int i = 0; i < N; i++) {
        double right = value(i, other, step);
        if (isnan(right) != isnan(in[i])) {
            return 1;
        }
        if (!isnan(right)) {
            least = fmin(least, right);
            most = fmax(most, right);
            worst = fmax(worst, fabs(in[i] - right));
        }
    }
    return worst / (most - least);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int other = 1 - rank;
    for (int tag = 5; tag < 7; tag++) {
        double worst = 0;
        for (int step = 0; step < ROUNDS; step++) {
            for (int i = 0; i < N; i++) {
                out[i] = value(i, rank, step);
            }
            MPI_Sendrecv(out, N, MPI_DOUBLE, other, tag, in, N, MPI_DOUBLE, other, tag,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            worst = fmax(worst, error(other, step));
        }
        const char *how = worst == 0 ? "exact"
            : worst <= 1e-6          ? "within 1e-6"
            : worst <= 1e-4          ? "within 1e-4"
                                     : "wrong";
        printf("rank %d tag %d: %s\n", rank, tag, how);
    }
    MPI_Finalize();
    return 0;
}
