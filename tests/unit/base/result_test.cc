#include <thalweg/result.h>

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/error_code.h"
#include "base/messages.h"

namespace thalweg {
namespace {

Result<int> failed() { return Error(ErrorCode::kPeerLost, "it is gone", 3); }

TEST(Error, without_a_code__is_a_bad_argument_of_no_rank) {
  const Error error("size: -1; above 0 is allowed");
  EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
  EXPECT_EQ(error.rank(), std::nullopt);
}

TEST(Error, within__keeps_code_and_rank) {
  const Error error = failed().error().within("allreduce");
  EXPECT_EQ(error.message(), "allreduce: it is gone");
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  EXPECT_EQ(error.rank(), 3);
}

TEST(Error, blaming__the_first_one_blamed_stays) {
  const Error late(ErrorCode::kTimeout, "no answer");
  EXPECT_EQ(late.blaming(1).rank(), 1);
  EXPECT_EQ(late.blaming(1).blaming(2).rank(), 1);
  EXPECT_EQ(late.blaming(1).code(), ErrorCode::kTimeout);
}

TEST(ErrorCode, names_and_numbers__lead_back_to_the_code) {
  std::set<std::string> names;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    names.insert(name_of(code));
    EXPECT_EQ(error_code_named(name_of(code)), code);
    EXPECT_EQ(error_code_of(static_cast<std::uint64_t>(i)), code);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kErrorCodeCount));
  EXPECT_EQ(error_code_of(kErrorCodeCount), ErrorCode::kInternal);
  EXPECT_EQ(error_code_of(~std::uint64_t{0}), ErrorCode::kInternal);
  EXPECT_EQ(error_code_named("of a newer version"), ErrorCode::kInternal);
}

TEST(Result, value__can_be_moved_out) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 7);
}

Status passes_on() {
  THALWEG_TRY([[maybe_unused]] const int value, failed());
  return ok_status();
}

TEST(Result, try__passes_code_and_rank_on) { EXPECT_EQ(kind_of(passes_on()), "peer lost, rank 3"); }

TEST(ResultDeathTest, value__of_a_failed_one_ends_with_its_error) {
  const std::string wanted =
      "the value of a Result was taken, but it holds an error \\(peer lost\\): it is gone";
  EXPECT_DEATH((void)failed().value(), wanted);
  EXPECT_DEATH((void)*failed(), wanted);
  EXPECT_DEATH((void)*std::as_const(*std::make_unique<Result<int>>(failed())), wanted);
  Result<std::string> text = Error("no text");
  EXPECT_DEATH((void)text->size(), "holds an error \\(bad argument\\): no text");
}

TEST(ResultDeathTest, error__of_a_good_one_is_a_bug) {
  EXPECT_DEATH((void)Result<int>(1).error(),
               "the error of a Result was taken, but it holds a value");
}

}  // namespace
}  // namespace thalweg
