/* An acoustic wave in three dimensions: second order in time, eighth in space, so four layers of
 * neighbours. Own data: two layers of rock and a source in the middle; `random`: each place has
 * a speed of its own, and the source is away from all symmetries.
 */
#include <math.h>

#include "halo.h"

static const float WEIGHTS[5] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

static void step(const Box *box, const float *speed, const float *now, float *next)
{
    size_t s[3] = {1, stride_of(box, 1), stride_of(box, 2)};
    EACH_PLACE(box, i, j, k)
    {
        size_t here = at(box, i, j, k);
        float sum = 3 * WEIGHTS[0] * now[here];
        for (int d = 0; d < 3; d++)
            for (size_t n = 1; n < 5; n++)
                sum += WEIGHTS[n] * (now[here - n * s[d]] + now[here + n * s[d]]);
        next[here] = 2 * now[here] - next[here] + speed[here] * sum;
    }
}

/* The Ricker wavelet with 24 steps a period. */
static float source(int step)
{
    double t = 3.14159265358979 * (step - 24) / 24.0;
    return (float)((1 - 2 * t * t) * exp(-t * t));
}

/* The square of the speed, in places a step. */
static float squared(const Box *box, Setup setup, int i, int j, int k)
{
    int x = global(box, 0, i), y = global(box, 1, j), z = global(box, 2, k);
    double speed = z < box->global[2] / 2 ? 0.25 : 0.4;
    uint64_t place = (uint64_t)x + 4096u * ((uint64_t)y + 4096u * (uint64_t)z);
    if (setup.random)
        speed *= 0.8 + 0.4 * drawn(3, place);
    return (float)(speed * speed);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    Setup setup = setup_of(argc, argv);
    Box box = box_of(setup, 4, 3, -1, 0);
    /* A dimension with one rank has its layers too, of zeros. */
    size_t count = values_of(&box);
    float *speed = room(count * 4), *now = room(count * 4), *next = room(count * 4);
    size_t shot = count;
    int where[3];
    for (int d = 0; d < 3; d++)
        where[d] = setup.random ? box.global[d] * (3 + d) / 11 : box.global[d] / 2;
    EACH_PLACE(&box, i, j, k)
    {
        size_t here = at(&box, i, j, k);
        speed[here] = squared(&box, setup, i, j, k);
        if (global(&box, 0, i) == where[0] && global(&box, 1, j) == where[1] &&
            global(&box, 2, k) == where[2])
            shot = here;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int t = 0; t < setup.steps; t++) {
        exchange(&box, field_of(now, MPI_FLOAT, 1), 40, 0);
        step(&box, speed, now, next);
        if (shot < count)
            next[shot] += source(t);
        float *old = now;
        now = next;
        next = old;
    }
    finish(now, count * 4, MPI_Wtime() - begin);
    free(speed);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
