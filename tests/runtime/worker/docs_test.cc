// The table of types and reductions in docs/collectives.md is what the code does.
#include "runtime/worker/reduction.h"
#include "tests/runtime/worker/reference.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace distrun {
namespace {

std::string table() {
  std::string text = "| type |";
  std::string line = "|---|";
  for (const ReduceOp op : test::kAllReduceOps) {
    text += " " + std::string(to_string(op)) + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const DType dtype : test::kAllDTypes) {
    text += "| " + std::string(to_string(dtype)) + " |";
    for (const ReduceOp op : test::kAllReduceOps)
      text += why_no_reduction(dtype, op).empty() ? " yes |" : " |";
    text += "\n";
  }
  return text;
}

TEST(Docs, TheTableOfTypesAndReductionsIsTrue) {
  std::ifstream file(DISTRUN_COLLECTIVES_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(table()), std::string::npos) << "the page needs:\n" << table();
}

}  // namespace
}  // namespace distrun
