// Times CUB's unordered selection of the k largest magnitudes on arrays of 1 GiB, for bench/gpu/table.py. It needs CUB 3.2, which came with CUDA 13.2.
#include <algorithm>
#include <cstdio>

#include <cub/device/device_topk.cuh>
#include <cuda/iterator>
#include <vector>

__global__ void fill(float *x, size_t n) {
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
		unsigned z = (unsigned)i * 0x9e3779b9u;
		z = (z ^ z >> 16) * 0x7feb352du, z = (z ^ z >> 15) * 0x846ca68bu;
		x[i] = -logf(((z ^ z >> 16) + 1.0f) * 2.3283064e-10f); // magnitudes, as gradients have them: few large ones
	}
}

// Keeps the GPU busy for about 0.1 ms, while what is timed is queued: or its first launch would be in the time.
__global__ void ahead(long long cycles) {
	for (const long long begin = clock64(); clock64() - begin < cycles;) {
	}
}

#define CHECK(call) \
	do { \
		cudaError_t e = call; \
		if (e != cudaSuccess) return fprintf(stderr, "cub: %s\n", cudaGetErrorString(e)), 1; \
	} while (0)

int main() {
	const size_t n = (size_t)1 << 28;
	float *x, *value;
	int *index;
	CHECK(cudaMalloc(&x, 4 * n));
	CHECK(cudaMalloc(&value, 4 * n / 8));
	CHECK(cudaMalloc(&index, 4 * n / 8));
	fill<<<4096, 256>>>(x, n);
	CHECK(cudaGetLastError());
	auto environment = cuda::execution::require(cuda::execution::determinism::not_guaranteed, cuda::execution::output_ordering::unsorted);
	for (double share : {0.001, 0.01, 0.1}) {
		const int k = (int)(n * share);
		size_t bytes = 0;
		void *room = nullptr;
		auto select = [&] { return cub::DeviceTopK::MaxPairs(room, bytes, x, value, cuda::counting_iterator<int>(0), index, (int)n, k, environment); };
		CHECK(select());
		CHECK(cudaMalloc(&room, bytes));
		std::vector<float> times;
		for (int i = 0; i < 24; i++) {
			cudaEvent_t begin, end;
			float ms;
			CHECK(cudaEventCreate(&begin));
			CHECK(cudaEventCreate(&end));
			ahead<<<1, 1>>>(200000);
			CHECK(cudaEventRecord(begin));
			CHECK(select());
			CHECK(cudaEventRecord(end));
			CHECK(cudaEventSynchronize(end));
			CHECK(cudaEventElapsedTime(&ms, begin, end));
			if (i >= 3) times.push_back(ms);
		}
		std::sort(times.begin(), times.end());
		printf("Select/alone/%g %30.3f ms\n", share, times[times.size() / 2]);
		CHECK(cudaFree(room));
	}
}
