#include "switch/queueing/classify.h"

#include <gtest/gtest.h>

namespace thalweg::switches {
namespace {

TEST(DscpClassifier, queue_of__class_selectors) {
  const DscpClassifier classifier;
  EXPECT_EQ(classifier.queue_of(0), 7);   // best effort
  EXPECT_EQ(classifier.queue_of(46), 2);  // expedited forwarding: CS5
  EXPECT_EQ(classifier.queue_of(56), 0);  // CS7
  EXPECT_EQ(classifier.queue_of(64), 7);  // only six bits are a DSCP
}

TEST(DscpClassifier, map__changes_one_value) {
  DscpClassifier classifier;
  classifier.map(10, 3);
  EXPECT_EQ(classifier.queue_of(10), 3);
  EXPECT_EQ(classifier.queue_of(11), 6);
}

TEST(Classify, queue_of_priority__clamps) {
  EXPECT_EQ(queue_of_priority(0), 0);
  EXPECT_EQ(queue_of_priority(7), 7);
  EXPECT_EQ(queue_of_priority(200), 7);
}

}  // namespace
}  // namespace thalweg::switches
