# distrun_test(NAME SOURCES a_test.cc… LABELS unit… [LIBS …] [TIMEOUT seconds])
# One GoogleTest binary per folder (linking is the slow part), its cases found by ctest.
include(GoogleTest)
function(distrun_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LABELS;LIBS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock_main distrun_warnings)
  set_target_properties(${name} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# Tests of whole jobs over simulated hosts, in Python. Where there can be none (no root, no namespaces), a case says so and is
# skipped; without a Python they are left out.
find_program(DISTRUN_CLUSTER_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH
  DOC "The Python that brings up simulated hosts")
find_program(DISTRUN_CLUSTER_PYTHON python3)
if(NOT DISTRUN_CLUSTER_PYTHON)
  message(STATUS "No python3: the tests over simulated hosts are left out")
endif()

# distrun_cluster_test(SUITE FILE SECONDS [LABEL label]): each case of test_FILE.py is the test SUITE.FILE.CASE,
# which may take that long. They mostly wait, but eight programs that start at once need what CPUs there are:
# at most two at a time, one of each half.
function(distrun_cluster_test suite file seconds)
  cmake_parse_arguments(arg "" "LABEL" "" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL ${suite})
  endif()
  set(half first)
  if(suite MATCHES "slurm|ssh|kubernetes")
    set(half second)
  endif()
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/test_${file}.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  file(STRINGS ${script} lines REGEX "^class |^    def test_")
  foreach(line ${lines})
    if(line MATCHES "^class ([A-Za-z]+)")
      set(class ${CMAKE_MATCH_1})
    elseif(line MATCHES "def test_([a-z0-9_]+)")
      set(case ${CMAKE_MATCH_1})
      set(name ${suite}.${file}.${case})
      add_test(NAME ${name} COMMAND ${DISTRUN_CLUSTER_PYTHON} -B ${script} ${class}.test_${case})
      set_tests_properties(${name} PROPERTIES LABELS "e2e;${arg_LABEL}" SKIP_RETURN_CODE 77 TIMEOUT ${seconds}
        RESOURCE_LOCK cluster_${half}
        ENVIRONMENT "DISTRUN_BIN=${PROJECT_BINARY_DIR}/bin;DISTRUN_CLUSTER_BIN=${PROJECT_BINARY_DIR}/cluster")
    endif()
  endforeach()
endfunction()
