# make demo     show trained networks and train one on real images, from a bare Debian 12
# make test     build everything and run every test
# make bench    kernel benchmarks          make sanitize  the tests under ASan, UBSan and TSan
# make python   build the Python module and run its tests
# make test-web the pages: types, bundles, browser (needs Node and Chromium)
# make fuzz TARGET=safetensors SECONDS=60   look for inputs that break a reader (needs clang)
# make lint     format and static checks   make format    apply the format
# make docs     the API reference in build/docs/html

PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')

.PHONY: all build test python test-web demo bench sanitize fuzz lint format docs packages

all: build

packages:
	@scripts/install-packages

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json | packages
	cmake --preset $(PRESET)

build: packages $(BUILD)/build.ninja
	cmake --build $(BUILD) --parallel $(JOBS)

test: build
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

# The module is for the Python whose PyTorch it is built with: Debian's, unless PYTHON names another.
PYTHON ?= /usr/bin/python3
python:
	@scripts/install-packages python
	cmake --preset $(PRESET) -DREMCAPS_PYTHON=ON -DPython3_EXECUTABLE=$(PYTHON)
	cmake --build $(BUILD) --parallel $(JOBS) --target _remcaps
	PYTHONPATH=$(BUILD)/python $(PYTHON) -m pytest -q -p no:cacheprovider python/tests

test-web:
	@scripts/install-packages web
	@if command -v clang++-16 wasm-ld-16 > /dev/null; then scripts/wasm --check; fi
	cd web && ONNXRUNTIME_NODE_INSTALL=skip npm ci && npm run check && node build.mjs --check && npm test
	@# Once everything is built, exported networks run in ONNX Runtime as well.
	@if test -x $(BUILD)/tests/onnx/test_onnx; then $(BUILD)/tests/onnx/test_onnx; fi

demo: packages $(BUILD)/build.ninja
	cmake --build $(BUILD) --parallel $(JOBS) --target remcaps_program
	scripts/demo $(BUILD)/remcaps

bench: build
	scripts/bench $(BUILD)

sanitize: packages
	cmake --preset asan-ubsan
	cmake --build build/asan-ubsan --parallel $(JOBS)
	scripts/run-sanitized build/asan-ubsan
	scripts/run-thread-sanitized

fuzz:
	@scripts/install-packages fuzz
	scripts/fuzz "$(TARGET)" $(SECONDS)

docs: packages $(BUILD)/build.ninja
	@scripts/install-packages docs
	@mkdir -p build/docs
	REMCAPS_PUBLIC_HEADERS="$$(cat $(BUILD)/public_headers.txt)" doxygen docs/Doxyfile

lint:
	@scripts/install-packages lint
	scripts/lint

format:
	@scripts/install-packages lint
	clang-format -i $(SOURCES)
