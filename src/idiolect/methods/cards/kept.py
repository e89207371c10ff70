"""What the server and a client keep beside the shared model: words by part, and how many scalars."""

from __future__ import annotations

__all__ = ["KEPT", "kept"]

KEPT = {  # by part: in words, what the server and what a client keeps
    "alternating_layers": ("", "the private layers"),
    "class_prototypes": ("the prototype of every class", ""),
    "contrastive": ("", "the last local model, and how often it took part"),
    "control_variates": ("the control c", "the control c_k"),
    "curvature": ("the sums U and V", "its own share of U and V, and the round it is from"),
    "dynamic_regulariser": ("the dual h", "the dual g_k"),
    "feature_fusion": ("the fusion operator", ""),
    "fine_tune": ("", "the tuned model, after the last round"),
    "gated_companion": ("", "the private model and the gate"),
    "inherited_model": ("", "the inherited model and its counter"),
    "inherited_teacher": ("", "the inherited model and its counter"),
    "meta_gradient": ("", "the adapted model, after the last round"),
    "mixed_companion": ("", "the private model and alpha"),
    "mixed_subspace": ("", "the private model"),
    "moreau_envelope": ("", "the personal model"),
    "mutual_companion": ("", "the private model"),
    "normalised_average": ("the momentum, where there is one", ""),
    "optimal_teacher": ("", "the best teacher, its loss and round; after the last round the student"),
    "personal_head": ("", "the private head"),
    "private_layers": ("", "the private layers"),
    "proximal_companion": ("", "the private model"),
    "server_optimiser": ("the moments of the optimiser", ""),
}


def kept(counts: dict[str, str], place: int) -> dict[str, str]:
    """Words and counts by part; ``place`` is 0 for the server and 1 for a client."""
    words = {part: KEPT.get(part, ("", ""))[place] for part in counts}
    both = {part: [w for w in (words[part], count) if w and w != "0"] for part, count in counts.items()}
    return {part: ": ".join(found) for part, found in both.items() if found}
