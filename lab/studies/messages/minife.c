/* miniFE's problem: diffusion on hexahedra with eight nodes. Each rank assembles the elements
 * whose first node is its own; what it has for rows of others goes to them, and then conjugate
 * gradients. One end of the first dimension is held at 0, the other at 1; `random`: each element
 * has a conductivity of its own, and each node a source.
 */
#include <math.h>

#include "cg.h"

/* The matrix of an element of side 1 by 2 x 2 x 2 Gauss points; node n is at (n&1, n>>1&1,
 * n>>2). */
static void element(double matrix[8][8])
{
    memset(matrix, 0, 64 * sizeof(double));
    for (int q = 0; q < 8; q++) {
        double at_[3], slope[8][3];
        for (int d = 0; d < 3; d++)
            at_[d] = 0.5 + (q >> d & 1 ? 0.5 : -0.5) / sqrt(3);
        for (int n = 0; n < 8; n++)
            for (int d = 0; d < 3; d++) {
                slope[n][d] = n >> d & 1 ? 1 : -1;
                for (int e = 0; e < 3; e++)
                    if (e != d)
                        slope[n][d] *= n >> e & 1 ? at_[e] : 1 - at_[e];
            }
        for (int a = 0; a < 8; a++)
            for (int b = 0; b < 8; b++)
                for (int d = 0; d < 3; d++)
                    matrix[a][b] += slope[a][d] * slope[b][d] / 8;
    }
}

/* The nodes of an element, from its first one. */
static size_t node(const Box *box, int n, int i, int j, int k)
{
    return at(box, i + (n & 1), j + (n >> 1 & 1), k + (n >> 2));
}

static uint64_t number(const Box *box, int i, int j, int k)
{
    return (uint64_t)global(box, 0, i) +
           4096u * ((uint64_t)global(box, 1, j) + 4096u * (uint64_t)global(box, 2, k));
}

/* Adds the elements of this rank to the rows of their nodes, of which some are other ranks'. */
static void assemble(const Box *box, Setup setup, double *rows)
{
    double matrix[8][8];
    element(matrix);
    EACH_PLACE(box, i, j, k)
    {
        int last[3] = {global(box, 0, i) + 1, global(box, 1, j) + 1, global(box, 2, k) + 1};
        if (!is_in_grid(box, last))
            continue;
        double conducts = setup.random ? 0.5 + drawn(5, number(box, i, j, k)) : 1;
        for (int a = 0; a < 8; a++) {
            double *row = rows + node(box, a, i, j, k) * ROW;
            for (int b = 0; b < 8; b++) {
                int step = (b & 1) - (a & 1) + 3 * ((b >> 1 & 1) - (a >> 1 & 1)) +
                           9 * ((b >> 2) - (a >> 2));
                row[MIDDLE + step] += conducts * matrix[a][b];
            }
            if (setup.random)
                row[RIGHT] += drawn(6, number(box, i, j, k)) / 8;
        }
    }
}

/* Adds what this rank has for the first layer of the next one to the rows there. */
static void fold(const Box *box, double *rows)
{
    Field field = field_of(rows, MPI_DOUBLE, ROW);
    for (int dim = DIMS - 1; dim >= 0; dim--) {
        if (!box->width[dim])
            continue;
        Region last = region_of(box, dim, box->inner[dim] + 1, 1, 1);
        Region first = region_of(box, dim, 1, 1, 1);
        size_t bytes = bytes_of(last, field.item);
        double *out = room(bytes), *in = room(bytes), *sum = room(bytes);
        copy(box, field, last, (char *)out, 0);
        int count = (int)(bytes / sizeof(double));
        MPI_Sendrecv(out, count, MPI_DOUBLE, box->upper[dim], 7, in, count, MPI_DOUBLE,
                     box->lower[dim], 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (box->lower[dim] != MPI_PROC_NULL) {
            copy(box, field, first, (char *)sum, 0);
            for (int n = 0; n < count; n++)
                sum[n] += in[n];
            copy(box, field, first, (char *)sum, 1);
        }
        free(out);
        free(in);
        free(sum);
    }
}

/* Holds the ends of the first dimension: their rows and columns go, and their values to the
 * right. */
static void hold_ends(const Box *box, double *rows)
{
    EACH_PLACE(box, i, j, k)
    {
        double *row = rows + at(box, i, j, k) * ROW;
        for (int n = 0; n < 27; n++) {
            int s[3];
            steps_of(n, s);
            int x = global(box, 0, i) + s[0], last = box->global[0] - 1;
            if (x == 0 || x == last) {
                row[RIGHT] -= row[n] * (x == last);
                row[n] = 0;
            }
        }
        int x = global(box, 0, i);
        if (x == 0 || x == box->global[0] - 1) {
            memset(row, 0, ROW * sizeof(double));
            row[MIDDLE] = 1;
            row[RIGHT] = x != 0;
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    Setup setup = setup_of(argc, argv);
    Box box = box_of(setup, 1, 3, -1, 0);
    double *rows = room(values_of(&box) * ROW * 8);
    assemble(&box, setup, rows);
    fold(&box, rows);
    hold_ends(&box, rows);
    solve(&box, rows, setup.steps);
    free(rows);
    MPI_Finalize();
    return 0;
}
