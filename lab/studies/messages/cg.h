/* Conjugate gradients on rows of 27 coefficients, those of the places around, as HPCCG and
 * miniFE have them: the last of 28 numbers of a row is the right-hand side.
 */
#ifndef CG_H
#define CG_H

#include <stddef.h>

#include "halo.h"

enum { ROW = 28, RIGHT = 27, MIDDLE = 13, TAG = 99 };

static inline int is_in_grid(const Box *box, const int where[3])
{
    for (int d = 0; d < 3; d++)
        if (where[d] < 0 || where[d] >= box->global[d])
            return 0;
    return 1;
}

/* The neighbour `n` of 27, as steps along each dimension. */
static inline void steps_of(int n, int step[3])
{
    step[0] = n % 3 - 1;
    step[1] = n / 3 % 3 - 1;
    step[2] = n / 9 - 1;
}

static void multiply(const Box *box, const double *rows, const double *p, double *out)
{
    ptrdiff_t away[27];
    for (int n = 0; n < 27; n++) {
        int s[3];
        steps_of(n, s);
        away[n] = s[0] + (ptrdiff_t)stride_of(box, 1) * s[1] + (ptrdiff_t)stride_of(box, 2) * s[2];
    }
    EACH_PLACE(box, i, j, k)
    {
        size_t here = at(box, i, j, k);
        const double *row = rows + here * ROW;
        double sum = 0;
        for (int n = 0; n < 27; n++)
            if (row[n] != 0)
                sum += row[n] * p[(ptrdiff_t)here + away[n]];
        out[here] = sum;
    }
}

static double dot(const Box *box, const double *a, const double *b)
{
    double mine = 0, all;
    EACH_PLACE(box, i, j, k)
    {
        size_t here = at(box, i, j, k);
        mine += a[here] * b[here];
    }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Takes `steps` steps from x = 0 and tells how far it came. */
static void solve(const Box *box, const double *rows, int steps)
{
    size_t count = values_of(box);
    double *x = room(count * 8), *r = room(count * 8), *p = room(count * 8), *q = room(count * 8);
    EACH_PLACE(box, i, j, k)
    {
        size_t here = at(box, i, j, k);
        r[here] = p[here] = rows[here * ROW + RIGHT];
    }
    double begin = MPI_Wtime(), norm = dot(box, r, r), first = norm;
    for (int step = 0; step < steps && norm > 0; step++) {
        exchange(box, field_of(p, MPI_DOUBLE, 1), TAG, 1);
        multiply(box, rows, p, q);
        double alpha = norm / dot(box, p, q), before = norm;
        for (size_t n = 0; n < count; n++) {
            x[n] += alpha * p[n];
            r[n] -= alpha * q[n];
        }
        norm = dot(box, r, r);
        for (size_t n = 0; n < count; n++)
            p[n] = r[n] + norm / before * p[n];
    }
    double seconds = MPI_Wtime() - begin;
    if (box->rank == 0)
        printf("residual squared %.3e of %.3e\n", norm, first);
    finish(x, count * 8, seconds);
    free(x);
    free(r);
    free(p);
    free(q);
}

#endif
