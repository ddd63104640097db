// Every scheme; each has its own file in this folder. scheme.cc lists them in the order of the
// tables.
#pragma once

#include "plan/scheme.h"

namespace thalweg::plan {

extern const Scheme kPs;
extern const Scheme kRing;
extern const Scheme kButterfly;
extern const Scheme kHalvingDoubling;
extern const Scheme kKNomial;
extern const Scheme kDoubleTree;
extern const Scheme kHierarchical;
extern const Scheme kBlueConnect;
extern const Scheme kPLink;
extern const Scheme kRat;
extern const Scheme kRatWeighted;
extern const Scheme kGossip;
extern const Scheme kDirect;

}  // namespace thalweg::plan
