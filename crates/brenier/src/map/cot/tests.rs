//! Properties of the flow.
