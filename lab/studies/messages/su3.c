/* Communication of lattice QCD as MILC has it: colour vectors on a periodic grid of four
 * dimensions, staggered fermions, conjugate gradients for (m^2 - D^2) x = b, and links that move
 * between solves. Own data: links near one; `random`: links drawn at will. Sources are drawn in
 * either case, as in MILC. Floats of 32 bits, as MILC's default was.
 */
#include <math.h>

#include "halo.h"

enum { COLOUR = 6, LINK = 18, LINKS = DIMS * LINK, SOLVE = 50, VECTORS = 60, MOVED = 80 };

static const float MASS = 0.1f;

/* Adds sign * U v to `out`, or sign * U^dagger v. */
static void add_product(const float *u, const float *v, float sign, int is_dagger, float *out)
{
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            const float *e = u + 2 * (is_dagger ? 3 * c + r : 3 * r + c);
            float re = e[0], im = is_dagger ? -e[1] : e[1];
            out[2 * r] += sign * (re * v[2 * c] - im * v[2 * c + 1]);
            out[2 * r + 1] += sign * (re * v[2 * c + 1] + im * v[2 * c]);
        }
}

/* Calls for each place of this rank: its coordinates with layers, and its place in memory. */
#define EACH_SITE(box, c, here)                                                      \
    for (size_t here = 0, c[DIMS]; is_there(box, here, c); here++)                   \
        if (is_own(box, c))

static int is_there(const Box *box, size_t here, size_t c[DIMS])
{
    for (int d = 0; d < DIMS; d++) {
        c[d] = here % (size_t)box->full[d];
        here /= (size_t)box->full[d];
    }
    return here == 0;
}

static int is_own(const Box *box, const size_t c[DIMS])
{
    for (int d = 0; d < DIMS; d++)
        if (c[d] < (size_t)box->width[d] || c[d] >= (size_t)(box->width[d] + box->inner[d]))
            return 0;
    return 1;
}

/* out = D v, whose neighbours are brought up to date first. */
static void hop(const Box *box, const float *links, float *v, float *out)
{
    exchange(box, field_of(v, MPI_FLOAT, COLOUR), VECTORS, 0);
    EACH_SITE(box, c, here)
    {
        float *sum = out + here * COLOUR;
        memset(sum, 0, COLOUR * sizeof(float));
        int phase = 0;
        for (int d = 0; d < DIMS; d++) {
            size_t s = stride_of(box, d);
            float sign = phase % 2 ? -0.5f : 0.5f;
            const float *up = links + here * LINKS + d * LINK;
            const float *down = links + (here - s) * LINKS + d * LINK;
            add_product(up, v + (here + s) * COLOUR, sign, 0, sum);
            add_product(down, v + (here - s) * COLOUR, -sign, 1, sum);
            phase += global(box, d, (int)c[d]);
        }
    }
}

static double dot(const Box *box, const float *a, const float *b)
{
    double mine = 0, all;
    EACH_SITE(box, c, here)
    {
        for (size_t n = here * COLOUR; n < (here + 1) * COLOUR; n++)
            mine += (double)a[n] * b[n];
    }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Makes the rows of a matrix orthonormal, and its determinant one. */
static void unitary(float *u)
{
    for (int r = 0; r < 2; r++) {
        for (int before = 0; before < r; before++) {
            float re = 0, im = 0;
            for (int c = 0; c < 6; c += 2) {
                re += u[c] * u[6 + c] + u[c + 1] * u[6 + c + 1];
                im += u[c] * u[6 + c + 1] - u[c + 1] * u[6 + c];
            }
            for (int c = 0; c < 6; c += 2) {
                u[6 + c] -= re * u[c] - im * u[c + 1];
                u[6 + c + 1] -= re * u[c + 1] + im * u[c];
            }
        }
        float norm = 0;
        for (int c = 0; c < 6; c++)
            norm += u[6 * r + c] * u[6 * r + c];
        for (int c = 0; c < 6; c++)
            u[6 * r + c] /= sqrtf(norm);
    }
    /* The third row is the conjugate of the cross product of the others. */
    for (int c = 0; c < 3; c++) {
        const float *a = u + 2 * ((c + 1) % 3), *b = u + 2 * ((c + 2) % 3);
        const float *e = a + 6, *f = b + 6;
        u[12 + 2 * c] = a[0] * f[0] - a[1] * f[1] - (b[0] * e[0] - b[1] * e[1]);
        u[12 + 2 * c + 1] = -(a[0] * f[1] + a[1] * f[0] - (b[0] * e[1] + b[1] * e[0]));
    }
}

/* Moves each link by about `size`, from what it is: with 0 in `keep` to a drawn one. */
static void move_links(const Box *box, float *links, float keep, float size, uint64_t seed)
{
    EACH_SITE(box, c, here)
    {
        for (size_t d = 0; d < DIMS; d++) {
            float *u = links + here * LINKS + d * LINK;
            for (size_t n = 0; n < LINK; n++) {
                uint64_t place = ((uint64_t)box->rank << 40) + here * LINKS + d * LINK + n;
                u[n] = keep * u[n] + size * (float)(drawn(seed, place) - 0.5);
            }
            unitary(u);
        }
    }
    exchange(box, field_of(links, MPI_FLOAT, LINKS), MOVED, 0);
}

/* Takes up to SOLVE steps from x = 0 for a drawn source. */
static void solve(const Box *box, const float *links, float *x, int steps, uint64_t seed)
{
    size_t count = values_of(box) * COLOUR;
    float *r = room(count * 4), *p = room(count * 4), *q = room(count * 4), *t = room(count * 4);
    memset(x, 0, count * 4);
    EACH_SITE(box, c, here)
    {
        for (size_t n = here * COLOUR; n < (here + 1) * COLOUR; n++)
            r[n] = p[n] = (float)(drawn(seed, ((uint64_t)box->rank << 40) + n) - 0.5);
    }
    double norm = dot(box, r, r);
    for (int step = 0; step < steps; step++) {
        hop(box, links, p, t);
        hop(box, links, t, q);
        for (size_t n = 0; n < count; n++)
            q[n] = MASS * MASS * p[n] - q[n];
        double before = norm;
        float alpha = (float)(norm / dot(box, p, q));
        for (size_t n = 0; n < count; n++) {
            x[n] += alpha * p[n];
            r[n] -= alpha * q[n];
        }
        norm = dot(box, r, r);
        for (size_t n = 0; n < count; n++)
            p[n] = r[n] + (float)(norm / before) * p[n];
    }
    if (box->rank == 0)
        printf("residual squared %.3e\n", norm);
    free(r);
    free(p);
    free(q);
    free(t);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    Setup setup = setup_of(argc, argv);
    Box box = box_of(setup, 1, 4, -1, 1);
    float *links = room(values_of(&box) * LINKS * 4), *x = room(values_of(&box) * COLOUR * 4);
    EACH_SITE(&box, c, here)
    {
        for (size_t d = 0; d < DIMS; d++)
            for (size_t n = 0; n < 3; n++)
                links[here * LINKS + d * LINK + 8 * n] = 1;
    }
    move_links(&box, links, setup.random ? 0.0f : 1.0f, setup.random ? 1.0f : 0.2f, 11);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int done = 0; done < setup.steps; done += SOLVE) {
        int left = setup.steps - done;
        solve(&box, links, x, left < SOLVE ? left : SOLVE, 100 + (uint64_t)done);
        move_links(&box, links, 1.0f, 0.02f, 200 + (uint64_t)done);
    }
    finish(x, values_of(&box) * COLOUR * 4, MPI_Wtime() - begin);
    free(links);
    free(x);
    MPI_Finalize();
    return 0;
}
