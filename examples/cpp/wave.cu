// A history of a wave on a GPU: every step of a wave equation is saved while it is computed, and
// restored in reverse order, as reverse time migration needs it. The history may be larger than the
// GPU's memory.
//
// nvcc -std=c++17 wave.cu $(pkg-config --cflags --libs unspool) -o wave
// ./wave [STEPS] [SIDE] [DEVICE TIER] [HOST TIER]

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <unspool.hpp>

namespace {

void check(cudaError_t code) {
    if (code != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
        std::exit(1);
    }
}

// next = 2 now - before + (c dt)^2 laplacian(now), in place of `before`; the edges stay 0.
__global__ void advance(float *before, const float *now, int side, int step) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < 1 || y < 1 || x >= side - 1 || y >= side - 1) return;
    const int at = y * side + x;
    const float u = now[at];
    const float around = now[at - 1] + now[at + 1] + now[at - side] + now[at + side];
    const float source = x == side / 2 && y == side / 2 ? sinf(0.1f * step) : 0.0f;
    before[at] = 2 * u - before[at] + 0.2f * (around - 4 * u) + source;
}

// The sum of squares over all steps, as a stand-in for what is correlated with an adjoint.
__global__ void correlate(float *image, const float *u, int cells) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < cells) image[at] += u[at] * u[at];
}

} // namespace

int main(int argc, char **argv) {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
    const int side = argc > 2 ? std::atoi(argv[2]) : 1024;
    const int cells = side * side;
    float *u = nullptr, *before = nullptr, *images[2] = {nullptr, nullptr};
    for (float **place : {&u, &before, &images[0], &images[1]}) {
        check(cudaMalloc(place, cells * sizeof(float)));
        check(cudaMemset(*place, 0, cells * sizeof(float)));
    }
    cudaStream_t stream;
    check(cudaStreamCreate(&stream));
    unspool::spool history({{"device", argc > 3 ? argv[3] : "256MiB"},
                            {"host", argc > 4 ? argv[4] : "2GiB"}});
    const dim3 grid((side + 255) / 256, side);
    std::vector<std::int64_t> order;
    for (int step = 0; step < steps; step++) {
        advance<<<grid, 256, 0, stream>>>(before, u, side, step);
        std::swap(u, before);
        correlate<<<(cells + 255) / 256, 256, 0, stream>>>(images[0], u, cells);
        history.save(step, {unspool::array(u, {side, side}, "u")}, stream);
        order.insert(order.begin(), step);
    }
    history.expect(order);
    for (const std::int64_t step : order) {
        history.restore(step, {unspool::array(u, {side, side}, "u")}, stream);
        correlate<<<(cells + 255) / 256, 256, 0, stream>>>(images[1], u, cells);
    }
    std::vector<float> forward(cells), reverse(cells);
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(forward.data(), images[0], cells * sizeof(float), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(reverse.data(), images[1], cells * sizeof(float), cudaMemcpyDeviceToHost));
    double sums[2] = {0, 0};
    for (int i = 0; i < cells; i++) {
        sums[0] += forward[i];
        sums[1] += reverse[i];
    }
    history.close();
    std::printf("%d steps of %.1f MiB: %.9g forward, %.9g in reverse order\n", steps,
                cells * 4 / 1048576.0, sums[0], sums[1]);
    return sums[0] > 0 && sums[1] > 0.9999 * sums[0] && sums[1] < 1.0001 * sums[0] ? 0 : 1;
}
