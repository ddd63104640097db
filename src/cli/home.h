// Where the project's own files (models, Python, experiments) are, and what runs its Python.
#pragma once

#include <string>

namespace thalweg {

// THALWEG_HOME, or else the source folder that this program was built from.
std::string home_folder();

// THALWEG_PYTHON, or else the environment that tools/setup makes, or else python3 of the PATH.
std::string python_interpreter();

}  // namespace thalweg
