"""Parts: one idea per file, each a named tuple of pure functions."""

from idiolect.parts.adaptive_aggregation import adaptive_aggregation
from idiolect.parts.adaptive_companion import adaptive_companion
from idiolect.parts.alternating_layers import alternating_layers
from idiolect.parts.attentive_mixture import attentive_mixture
from idiolect.parts.average import average
from idiolect.parts.calibrated_softmax import calibrated_softmax
from idiolect.parts.chosen_clusters import chosen_clusters
from idiolect.parts.class_prototypes import class_prototypes
from idiolect.parts.classifier_collaboration import classifier_collaboration
from idiolect.parts.client_dp import client_dp
from idiolect.parts.component_mixture import component_mixture
from idiolect.parts.conditional_features import conditional_features
from idiolect.parts.conditional_policy import conditional_policy
from idiolect.parts.contrastive import contrastive
from idiolect.parts.control_variates import control_variates
from idiolect.parts.critical_parameters import critical_parameters
from idiolect.parts.curvature import curvature
from idiolect.parts.directed_relationships import directed_relationships
from idiolect.parts.dp_sgd import dp_sgd
from idiolect.parts.dynamic_regulariser import dynamic_regulariser
from idiolect.parts.ensemble_distillation import ensemble_distillation
from idiolect.parts.feature_alignment import feature_alignment
from idiolect.parts.feature_fusion import feature_fusion
from idiolect.parts.feature_generator import feature_generator
from idiolect.parts.fine_tune import fine_tune
from idiolect.parts.first_order_mixture import first_order_mixture
from idiolect.parts.fixed_head import fixed_head
from idiolect.parts.gated_companion import gated_companion
from idiolect.parts.geometric_median import geometric_median
from idiolect.parts.global_header import global_header
from idiolect.parts.hypernetwork import hypernetwork
from idiolect.parts.informed_average import informed_average
from idiolect.parts.inherited_model import inherited_model
from idiolect.parts.inherited_teacher import inherited_teacher
from idiolect.parts.krum import krum, multi_krum
from idiolect.parts.label_distillation import label_distillation
from idiolect.parts.low_rank_average import low_rank_average
from idiolect.parts.median import median
from idiolect.parts.meta_gradient import meta_gradient
from idiolect.parts.mixed_companion import mixed_companion
from idiolect.parts.mixed_subspace import mixed_subspace
from idiolect.parts.moreau_envelope import moreau_envelope
from idiolect.parts.mutual_companion import mutual_companion
from idiolect.parts.nearest_neighbours import nearest_neighbours
from idiolect.parts.norm_bound import norm_bound
from idiolect.parts.normalised_average import normalised_average
from idiolect.parts.not_true_distillation import not_true_distillation
from idiolect.parts.optimal_teacher import optimal_teacher
from idiolect.parts.personal_head import personal_head
from idiolect.parts.private_layers import private_layers
from idiolect.parts.private_normalisation import private_normalisation
from idiolect.parts.proximal import proximal
from idiolect.parts.proximal_companion import proximal_companion
from idiolect.parts.received_teacher import received_teacher
from idiolect.parts.representation_bias import representation_bias
from idiolect.parts.restricted_softmax import restricted_softmax
from idiolect.parts.server_optimiser import server_optimiser
from idiolect.parts.similarity_mixture import similarity_mixture
from idiolect.parts.solution_simplex import solution_simplex
from idiolect.parts.split_clusters import split_clusters
from idiolect.parts.spread_out import spread_out
from idiolect.parts.trimmed_mean import trimmed_mean

__all__ = [
    "adaptive_aggregation",
    "adaptive_companion",
    "alternating_layers",
    "attentive_mixture",
    "average",
    "calibrated_softmax",
    "chosen_clusters",
    "class_prototypes",
    "classifier_collaboration",
    "client_dp",
    "component_mixture",
    "conditional_features",
    "conditional_policy",
    "contrastive",
    "control_variates",
    "critical_parameters",
    "curvature",
    "directed_relationships",
    "dp_sgd",
    "dynamic_regulariser",
    "ensemble_distillation",
    "feature_alignment",
    "feature_fusion",
    "feature_generator",
    "fine_tune",
    "first_order_mixture",
    "fixed_head",
    "gated_companion",
    "geometric_median",
    "global_header",
    "hypernetwork",
    "informed_average",
    "inherited_model",
    "inherited_teacher",
    "krum",
    "label_distillation",
    "low_rank_average",
    "median",
    "meta_gradient",
    "mixed_companion",
    "mixed_subspace",
    "moreau_envelope",
    "multi_krum",
    "mutual_companion",
    "nearest_neighbours",
    "norm_bound",
    "normalised_average",
    "not_true_distillation",
    "optimal_teacher",
    "personal_head",
    "private_layers",
    "private_normalisation",
    "proximal",
    "proximal_companion",
    "received_teacher",
    "representation_bias",
    "restricted_softmax",
    "server_optimiser",
    "similarity_mixture",
    "solution_simplex",
    "split_clusters",
    "spread_out",
    "trimmed_mean",
]
