/** What scripts of packs add to the page; each adds its own when it is loaded, before the page is shown. */
export const added = {
  /** By the name of a part of the stored verdict: (part) -> what the verdict shows of it. */
  verdicts: {},
  /** Groups of metrics among the mean scores: {title, when, figures: [[name, title]], sums, note}; `when` is a metric that has to be there. */
  metricGroups: [],
};
