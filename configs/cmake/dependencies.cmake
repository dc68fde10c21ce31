# Everything we use from outside, found in one place.  Debian packages only; `scripts/setup` installs
# them.  The launcher must start in a millisecond, so what it links is linked statically where
# Debian has an archive, and spdlog is compiled into runtime/base/log.cc (its shared library costs
# more start-up time than all of our own code).
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS filesystem)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)

if(NOT DISTRUN_GLOO STREQUAL "OFF")
  find_package(Gloo CONFIG QUIET)
  if(NOT Gloo_FOUND AND DISTRUN_GLOO STREQUAL "ON")
    message(FATAL_ERROR "DISTRUN_GLOO=ON, but Gloo was not found: apt-get install libgloo-dev")
  endif()
endif()

include(nccl)

if(DISTRUN_TESTS)
  find_package(GTest REQUIRED)
endif()
