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
