# Versions. Go and every module: go.mod. The tools of `lint`, `proto` and `bench`: tools/go.mod, the servers of
# `stores`: tools/stores.mod, and the tool of `mutants`: tools/mutants.mod, built from source by the go command. A C
# compiler is used if there is one; CGO_ENABLED=0 works too.
GO      := go
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION := 0.1.0-dev

# What `train` does besides training: it kills a server. Any flags of `kintsugi train` may be put here.
TRAIN ?= --fault "kill server/0 at step 500 for 2s"
OUT   ?= runs/$(shell date +%Y%m%d-%H%M%S)

# What the test targets run on, and with which flags: make test PKG=./server/... TESTFLAGS='-short -v'
PKG       ?= ./...
TESTFLAGS ?=
# How long `fuzz` stays with each target, and how often `soak` and `bench` repeat.
TIME  ?= 10s
COUNT ?= 10

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

# Empty where git cannot say; the program then says "unknown".
commit = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
stamp  = $(addprefix -X github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job.,release=$(VERSION) commit=$(commit))

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build bin/kintsugi
	$(GO) build -buildvcs=false -ldflags '$(stamp)' -o bin/kintsugi ./cmd/kintsugi

.PHONY: train
train: build ## train on this machine and survive the death of a server (TRAIN=flags OUT=folder)
	bin/kintsugi train $(TRAIN) --out $(OUT)

.PHONY: test
test: ## run all tests (PKG=packages TESTFLAGS=flags, here and below)
	$(GO) test -timeout 10m $(TESTFLAGS) $(PKG)

.PHONY: race
race: ## run all tests under the race detector, in all processes that they start; needs a C compiler
	.ci/race $(GO) test -race -timeout 20m $(TESTFLAGS) $(PKG)

.PHONY: nocgo
nocgo: ## build and test as on a machine without a C compiler
	CGO_ENABLED=0 $(GO) build -buildvcs=false $(PKG)
	CGO_ENABLED=0 $(GO) test -timeout 10m $(TESTFLAGS) $(PKG)

.PHONY: exact
exact: ## check that builds for old and new processors and without C give equal bits (TESTFLAGS=-short)
	@.ci/exact $(TESTFLAGS)

# What stands for a machine with arm64 on one of another kind.
QEMU  ?= qemu-aarch64 -L /usr/aarch64-linux-gnu
ARMCC ?= aarch64-linux-gnu-gcc

# The packages whose results a fused multiply-add could change.
ARITHMETIC := ./kernels/... ./worker/model/... ./worker/kept ./worker/local ./server/... ./recovery/choose ./recovery/ledger ./recovery/scar ./internal/fade ./internal/cost

.PHONY: arm64
arm64: ## test arithmetic, estimates, servers and equal bits as on arm64, with and without NEON, under QEMU; five minutes (QEMU=program ARMCC=compiler)
	@for program in $(firstword $(QEMU)) $(ARMCC); do command -v $$program >/dev/null || \
	{ echo "arm64: there is no $$program: install QEMU for user programs and a C compiler for arm64, as apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross does"; exit 1; }; done
	GOARCH=arm64 CGO_ENABLED=1 CC=$(ARMCC) $(GO) test -vet=off -count 1 -short -timeout 20m -exec '$(QEMU)' $(TESTFLAGS) $(ARITHMETIC)
	@CC=$(ARMCC) QEMU='$(QEMU)' .ci/exact -arm64

# Leaks are not looked for, since the table of a loaded matrix library is meant to live as long as the process. No Go code
# but that of shared memory is instrumented: that would make it many times slower. C code that leaves an array of Go is
# found all the same, since Go's allocations are fenced off in any case.
ASAN := -asan -gcflags=all=-asan=false -gcflags=./internal/shm=

.PHONY: asan
asan: ## test the C code, and shared memory, under AddressSanitizer; needs a C compiler that has it
	@echo 'int main(void) { return 0; }' | $$($(GO) env CC) -fsanitize=address -x c - -o /dev/null || \
	{ echo "asan: $$($(GO) env CC) cannot build with -fsanitize=address: install a C compiler and its libasan"; exit 1; }
	CGO_ENABLED=1 ASAN_OPTIONS=detect_leaks=0 $(GO) test $(ASAN) -count 1 -timeout 20m $(TESTFLAGS) ./kernels/... ./internal/shm

# In a build without C, vet only looks at packages that have other files there. A test checks whether everything is well
# typed for arm64, without C: for that, vet would compile all that the tree imports (make portable does). staticcheck
# collects garbage less often than usual: that takes 0.7 GB of memory in place of 0.4, and a third less time.
.PHONY: lint
lint: ## check format, vet, types (arm64 too, no cgo), the rules of internal/lint, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet $$(.ci/differ CGO_ENABLED=0)
	$(GO) test -vet=off -count=1 ./internal/lint -args -arch arm64
	GOGC=300 $(TOOL) staticcheck ./...

.PHONY: portable
portable: ## compile everything for arm64, macOS and FreeBSD, with vet
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) vet ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	CGO_ENABLED=0 GOOS=freebsd GOARCH=amd64 $(GO) vet ./...

# GPUs. The tag gpu adds them to a build on Linux with cgo; no part of CUDA is needed to build, and none to start.
CUDA := -tags gpu
# The packages whose tests need a GPU or the emulation of one.
GPUTESTS := ./cuda ./cuda/engine

.PHONY: cuda
cuda: ## build bin/kintsugi for GPUs too; it starts on machines without one
	$(GO) build $(CUDA) -buildvcs=false -ldflags '$(stamp)' -o bin/kintsugi ./cmd/kintsugi

.PHONY: vet-cuda
vet-cuda: ## vet what only a build for GPUs has
	$(GO) vet $(CUDA) ./cuda/... ./cmd/kintsugi/... ./bench/gpu
	GOGC=300 $(TOOL) staticcheck $(CUDA) ./cuda/... ./cmd/kintsugi/... ./bench/gpu

.PHONY: emu
emu: ## test the kernels of GPUs on this processor; needs g++ (TESTFLAGS=-short: the CI's part)
	$(GO) test $(CUDA) -timeout 30m $(TESTFLAGS) ./cuda/kernel ./cuda/emulate ./bench/gpu $(GPUTESTS)
	$(GO) test $(CUDA) -timeout 30m $(TESTFLAGS) $(GPUTESTS) -args -ptx
	$(GO) test $(CUDA) -timeout 10m $(TESTFLAGS) -run "OnTheGPU|AGPU" ./cmd/kintsugi
	$(GO) test $(CUDA) -timeout 10m $(TESTFLAGS) -run 'Outlives?AServer' ./cmd/kintsugi -args -ptx

.PHONY: emu-asan
emu-asan: ## test under AddressSanitizer that kernels of GPUs stay within their arrays
	ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 $(GO) test $(ASAN) $(CUDA) -short -timeout 30m $(TESTFLAGS) \
	-run 'Contract$$/(unaligned|payloads|norms|finite|rows|encoders)|ModelsCompute|TheLargest|RoundedFactors|LowRank|NotZero|RowsAndColumns|InParts|LocalSteps|OfLogits|OfAnEmbedding' $(GPUTESTS)

.PHONY: test-cuda
test-cuda: ## test on the GPU of this machine; what skips for want of one fails
	$(GO) test $(CUDA) -timeout 10m $(TESTFLAGS) $(GPUTESTS) -args -real -must
	$(GO) test $(CUDA) -timeout 10m $(TESTFLAGS) -run OnTheGPU ./cmd/kintsugi -args -real -must

# The compiler and the assembler of kernels, both parts of CUDA 12.8.
NVRTC ?= libnvrtc.so.12
PTXAS ?= ptxas

.PHONY: ptx
ptx: ## make the PTX of the kernels anew (NVRTC=library PTXAS=program)
	$(GO) run $(CUDA) ./cuda/kernel/gen -nvrtc $(NVRTC) -ptxas $(PTXAS)

.PHONY: gpu-folder
gpu-folder: ## build bin/gpu, a folder to carry to a machine that has a driver and nothing else (NVCC=program NVCCFLAGS=flags)
	rm -rf bin/gpu
	bench/gpu/build bin/gpu '$(stamp)'

.PHONY: fuzz
fuzz: ## run every fuzz target in turn (TIME=10s each)
	@.ci/fuzz $(TIME) $(PKG)

.PHONY: mutants
mutants: ## plant small mistakes in one package, one by one, and show which its tests miss (PKG=./server/agg); minutes
	@[ "$(PKG)" != ./... ] || { echo "mutants: name one package, as in make mutants PKG=./server/agg"; exit 1; }
	$$($(GO) tool -modfile=tools/mutants.mod -n gremlins) unleash $(PKG) --timeout-coefficient 30 \
	--invert-assignments --invert-bitwise --invert-logical --invert-loopctrl --remove-self-assignments | grep -v KILLED

.PHONY: bench
bench: ## run the benchmarks; `go tool -modfile=tools/go.mod benchstat OLD NEW` compares two outputs
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 60m $(TESTFLAGS) $(PKG)

.PHONY: guard
guard: build ## fail where kernels and codecs miss 0.8 of their goals (docs/performance.md); a minute, machine otherwise idle
	bin/kintsugi bench kernels --goals --sizes 1,512 --k 4 --threads 1 >/dev/null
	bin/kintsugi bench codec --goals --sizes 1,512 --codecs bf16,int8,sign,topk:0.01 --threads 1 >/dev/null

# The emulator of Azure's store is Microsoft's own, for Node.js.
AZURITE := bin/azurite/node_modules/.bin/azurite-blob

.PHONY: stores
stores: ## test checkpoints in versitygw, fake-gcs-server and, where there is npm, Azurite; the first run builds them, some minutes
	[ -x $(AZURITE) ] || ! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix bin/azurite azurite@3.37.0
	s3=$$($(GO) tool -modfile=tools/stores.mod -n versitygw) && gs=$$($(GO) tool -modfile=tools/stores.mod -n fake-gcs-server) && \
	KINTSUGI_S3=$$s3 KINTSUGI_GS=$$gs KINTSUGI_AZ=$$(realpath -q $(AZURITE)) \
		$(GO) test -count 1 -timeout 10m $(TESTFLAGS) -run 'Store|Disk|Large|OneName' ./recovery/ckpt/object ./cmd/kintsugi

# It takes minutes of processors to compile Helm and the types of Kubernetes, and only files in these two folders decide
# what the tests of the chart say. So it is written down which files have passed, and .ci/run tests others alone.
CHART := deploy/kubernetes/chart deploy/kubernetes/check

.PHONY: chart
chart: ## hold the chart for Kubernetes against its types, with Helm's own renderer, and note that it has passed
	cd deploy/kubernetes/check && $(GO) vet . && $(GO) test -count 1 $(TESTFLAGS) .
	@[ -n "$(TESTFLAGS)" ] || .ci/sum $(CHART) >deploy/kubernetes/passed

.PHONY: chart-passed
chart-passed: ## hold the chart against its types, unless it is as it was when it passed last
	@if [ "$$(.ci/sum $(CHART))" = "$$(cat deploy/kubernetes/passed)" ]; then echo "the chart and its tests are as they were when they passed"; \
	else $(MAKE) chart; fi

.PHONY: kubernetes
kubernetes: ## run the chart on a real control plane, with processes for pods; as root; the first run builds it, ten minutes
	CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/kintsugi-static ./cmd/kintsugi
	cd deploy/kubernetes/cluster && $(GO) vet . && $(GO) build -o ../../../bin/kubernetes ./plane && \
	KINTSUGI_PLANE=$(CURDIR)/bin/kubernetes KINTSUGI_STATIC=$(CURDIR)/bin/kintsugi-static unshare --mount $(GO) test -count 1 -v -timeout 20m $(TESTFLAGS) .

.PHONY: slurm
slurm: build ## run the scripts for Slurm on a Slurm of this machine; as root, with Debian's slurmctld, slurmd, slurm-client and munge; seventeen minutes
	$(GO) test -count 1 -v -timeout 40m $(TESTFLAGS) ./deploy/slurm -args -slurm

# What `sim` replays, and how many seeds `soak` runs. STEPS=0: as many steps as the seed draws.
SEED  ?= 1
STEPS ?= 0
SEEDS ?= 50000

.PHONY: sim
sim: ## replay one simulated run, event by event (SEED=1 STEPS=0)
	$(GO) test ./internal/sim -count 1 -v -run '^TestReplay$$' -args -seed $(SEED) -steps $(STEPS)

# What `model` looks at in protocol.pml: two steps with as many faults, and as many gradients in a step, of two.
FAULTS ?= 1
QUOTA  ?= 2

.PHONY: model
model: ## look at every order of events of the models in docs/model with Spin (FAULTS=1 QUOTA=2); needs spin and a C compiler
	@command -v spin >/dev/null || \
	{ echo "model: there is no spin here: apt-get install spin, brew install spin, or build it from github.com/nimble-code/Spin"; exit 1; }
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; cd "$$dir"; \
	look() { \
		name=$$1; store=$$2; shift 2; \
		spin "$$@" -a "$(CURDIR)/docs/model/$$name.pml" && \
		$$($(GO) env CC) -O2 -w -DSAFETY "-D$$store" -DVECTORSZ=4096 -o pan pan.c && \
		./pan -m2000000 -w25 >out && grep -q 'errors: 0' out && ! grep -q 'too small' out || { cat out; echo "model: $$name.pml $$*: an error"; return 1; }; \
		echo "$$name.pml $$*: no error in $$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states"; \
	}; \
	look protocol COLLAPSE -DF=$(FAULTS) -DQUOTA=$(QUOTA) && \
	look move HC4 -DN=2 -DF=2 && \
	look next COLLAPSE -DN=2 -DF=1 && \
	look next COLLAPSE -DN=2 -DF=1 -DSTANDIN=1 && \
	look next HC4 -DN=4 -DF=2 -DSTAY=1

.PHONY: soak
soak: build ## simulate many seeds (SEEDS=50000), kill 300 processes in every state, 200 of them of chains, draw 200 runs, and 50 under the race detector, cut hosts off, then repeat the tests in random order (COUNT=10)
	$(GO) test ./internal/sim -count 1 -timeout 120m -v -run '^TestSoak$$' -args -seeds $(SEEDS) -result testdata/soak.txt
	$(GO) test ./internal/sim -count 1 -timeout 120m -v -run '^TestWhatWorkersSeeIsInOrder$$' -args -seeds 1000
	$(GO) test ./internal/live -count 1 -timeout 120m -v -run '^TestStormsOfRealShells$$' -args -seeds 2000
	bin/kintsugi bench kills --kills 100 --seed 2
	bin/kintsugi bench drawn --runs 200 --seed 1
	.ci/race $(GO) run -race ./cmd/kintsugi bench drawn --runs 50 --seed 2
	$(MAKE) survive
	$(GO) test -count $(COUNT) -shuffle on -timeout 120m $(TESTFLAGS) $(PKG)

.PHONY: survive
survive: build ## kill 200 servers of chains of 2 and of 3, time failovers, wait ten minutes for a false one, and cut hosts off; half an hour
	bin/kintsugi bench kills --kills 100 --seed 3 --recovery chain --only server
	bin/kintsugi bench kills --kills 100 --seed 4 --recovery chain --only server --servers 3 -- --replicas 3
	bin/kintsugi bench failover
	bin/kintsugi bench alarms
	$(GO) test ./cmd/kintsugi -count 1 -v -run 'HostsThatAreCutOff|HostThatIsCutOff|WorkersSeeOfProcesses|AHeadThatHangs' -args -cuts

.PHONY: proto
proto: ## check proto/ and regenerate its Go code; the first run builds buf, about two minutes
	$(TOOL) buf lint proto
	$(TOOL) buf generate proto --template proto/buf.gen.yaml

.PHONY: proto-check
proto-check: ## fail unless the Go code in proto/ is what `make proto` makes
	$(TOOL) buf lint proto
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(TOOL) buf generate proto --template proto/buf.gen.yaml --output "$$dir"; \
	diff -r -x '*.proto' -x '*.yaml' proto "$$dir/proto" || { echo "proto/ is out of date: run make proto"; exit 1; }

.PHONY: ci
ci: ## do what the continuous integration does
	.ci/run

.PHONY: long
long: ## do what the continuous integration leaves out, as far as this machine has what it needs; two hours (LONG=stages)
	.ci/long $(LONG)

.PHONY: clean
clean: ## remove what `build` made; runs/ holds your results and stays
	rm -rf bin
