// One function per figure, and what they share; figure.cpp lists them.
#pragma once

#include "remcaps/report/figure.h"

namespace remcaps {

/// UsageError unless exactly one run is given.
void expect_one_run(const FigureOptions& options, const std::string& figure);
ShownRun load_one_run(const FigureOptions& options, const std::string& figure);

/// options.images, or the first image of each class, at most `most`. Error for places outside the
/// split.
std::vector<int64_t> shown_images(const FigureOptions& options, const ShownRun& run, size_t most);

// figure_schemes.cpp
Figure architecture_figure(const FigureOptions& options);
Figure pipeline_figure(const FigureOptions& options);

// figure_saliency.cpp
Figure saliency_steps_figure(const FigureOptions& options);
Figure saliency_figure(const FigureOptions& options);
Figure saliency_views_figure(const FigureOptions& options);
Figure object_share_figure(const FigureOptions& options);

// figure_faithfulness.cpp
Figure faithfulness_figure(const FigureOptions& options);

// figure_trees.cpp
Figure parse_tree_figure(const FigureOptions& options);
Figure dataset_trees_figure(const FigureOptions& options);
Figure class_trees_figure(const FigureOptions& options);
Figure sample_trees_figure(const FigureOptions& options);

// figure_curves.cpp
Figure levels_figure(const FigureOptions& options);
Figure entropy_figure(const FigureOptions& options);
Figure sparsity_figure(const FigureOptions& options);
Figure pareto_figure(const FigureOptions& options);

// figure_couplings.cpp
Figure keys_figure(const FigureOptions& options);
Figure couplings_figure(const FigureOptions& options);
Figure couplings_epochs_figure(const FigureOptions& options);

// figure_images.cpp
Figure perturbations_figure(const FigureOptions& options);
Figure dictionary_figure(const FigureOptions& options);

}  // namespace remcaps
