"""Every text of the business report that is not data, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_agentbench.packs.research.records import Language

_TEXTS = {
    "title": ("POET report", "POET 综合分析报告"),
    "comparison": ("POET comparison", "POET 对比报告"),
    "reports": ("Reports", "报告"),
    "report": ("report", "报告"),
    "n_total": ("in all", "总数"),
    "n_scored": ("scored", "已评分"),
    "n_failed": ("failed", "失败"),
    "n_not_reached": ("not reached", "未执行"),
    "model": ("Model", "模型"),
    "models": ("Models", "模型"),
    "task": ("Task", "任务"),
    "tasks": ("Tasks", "任务"),
    "domain": ("Domain", "领域"),
    "domains": ("Domains", "领域"),
    "complexity_level": ("Complexity level", "复杂度"),
    "complexity_levels": ("Complexity levels", "复杂度"),
    "language": ("Language", "语言"),
    "languages": ("Languages", "语言"),
    "zh": ("Chinese", "中文"),
    "en": ("English", "英文"),
    "untold": ("not told", "未注明"),
    "score": ("Score", "得分"),
    "scores": ("Scores", "得分"),
    "scores_note": (
        "0 to 1. The interval is that of the mean, 95 %, and given for at least 5 reports that differ.",
        "取值 0 到 1。区间为均值的 95% 置信区间，至少 5 份互不相同的报告才给出。",
    ),
    "n": ("n", "n"),
    "mean": ("Mean", "均值"),
    "interval": ("95 % interval", "95% 区间"),
    "lowest": ("Lowest", "最低"),
    "highest": ("Highest", "最高"),
    "to": ("to", "至"),
    "weight": ("weight", "权重"),
    "class": ("Class", "等级"),
    "classes": ("Classes", "等级分布"),
    "from": ("from {:g}", "{:g} 起"),
    "below": ("below {:g}", "低于 {:g}"),
    "excellent": ("excellent", "优秀"),
    "good": ("good", "良好"),
    "acceptable": ("acceptable", "合格"),
    "poor": ("poor", "较差"),
    "insufficient": ("insufficient", "不合格"),
    "overall_poet_score": ("POET score", "POET 综合分"),
    "efficiency_score": ("Efficiency", "效率价值"),
    "quality_score": ("Quality", "质量价值"),
    "strategic_score": ("Strategic value", "战略价值"),
    "race_score": ("RACE", "RACE 综合分"),
    "fact_accuracy": ("Citation accuracy", "引用准确率"),
    "time_saving": ("Time saving, share", "时间节约率"),
    "automation_rate": ("Automation", "自动化程度"),
    "complexity_adaptability": ("Complexity adaptability", "任务复杂度适应性"),
    "supported_per_1000_words": ("Supported citations per 1,000 words", "每千词有效引用数"),
    "comprehensiveness": ("Comprehensiveness", "全面性"),
    "insight": ("Insight", "洞察力"),
    "instruction_following": ("Instruction following", "指令遵循能力"),
    "readability": ("Readability", "可读性"),
    "race_note": (
        "0.50 is as good as the reference where there is one; without a reference, points of 10.",
        "有参考报告时，0.50 表示与参考报告相当；无参考报告时为十分制得分的十分之一。",
    ),
    "citations": ("Citations", "引用"),
    "supported": ("supported", "有依据"),
    "unsupported": ("unsupported", "无依据"),
    "unknown": ("not checkable", "无法核实"),
    "accuracy_pooled": ("Accuracy over all citations", "全部引用的准确率"),
    "accuracy_of": (
        "{supported} of {known} citations that could be checked hold",
        "可核实的 {known} 条引用中有 {supported} 条属实",
    ),
    "costs": ("Costs and time", "成本与时间"),
    "n_note": ("A figure that fewer reports have says its own n.", "只有部分报告具备的数据另注 n。"),
    "costs_note": (
        "Each sum is over the n reports that have the figure, so sums with different n cannot be subtracted.",
        "每项合计只包含有该数据的 n 份报告，n 不同的合计不可相减。",
    ),
    "figure": ("Figure", "指标"),
    "sum": ("Sum", "合计"),
    "per_report": ("Per report", "每份报告"),
    "ai_usd": ("Agent's cost", "AI 成本"),
    "expert_usd": ("Expert's cost", "专家成本"),
    "saving_usd": ("Cost saving", "成本节约额"),
    "ai_hours": ("Agent's time", "AI 用时"),
    "expert_hours": ("Expert's time", "专家用时"),
    "saved_hours": ("Time saved", "节约时间"),
    "input_tokens": ("Input tokens", "输入 token"),
    "output_tokens": ("Output tokens", "输出 token"),
    "judge": ("What judges cost in this call for these reports", "本次调用中评审这些报告的花费"),
    "stage": ("Stage", "阶段"),
    "requests": ("Requests", "请求数"),
    "no_cost": ("Requests without a price", "价格未知的请求"),
    "top": ("Highest scores", "得分最高的任务"),
    "bottom": ("Lowest scores", "得分最低的任务"),
    "recommendations": ("Recommendations", "建议"),
    "recommendations_none": (
        "No rule found anything in {n} reports.",
        "在 {n} 份报告中，没有规则给出建议。",
    ),
    "rests_on": ("Rests on tasks (n = {n})", "依据的任务（n = {n}）"),
    "more": ("and {n} more", "另有 {n} 个"),
    "missing": ("What is missing, and why", "缺失项及原因"),
    "missing_none": ("Nothing: all {n} reports have every part.", "无缺失：{n} 份报告各项齐全。"),
    "missing_no_report": ("There is no report.", "没有报告。"),
    "missing_unreached": (
        "An interruption left {n} reports without any score; the same command goes on with them.",
        "因中断有 {n} 份报告未评分；重新运行同一命令即可继续。",
    ),
    "missing_efficiency": ("Efficiency", "效率价值"),
    "missing_race": ("RACE", "RACE"),
    "missing_fact": ("Citation accuracy", "引用准确率"),
    "missing_strategic": ("Strategic value", "战略价值"),
    "missing_report": ("Report", "报告"),
    "missing_lost": ("Rows that could not be read", "无法读取的行"),
    "part": ("Part", "项"),
    "reason": ("Reason", "原因"),
    "evidence": ("Evidence", "依据"),
    "evidence_note": (
        "Of the tasks that recommendations name first and of those with the lowest scores; "
        "the detailed JSON file has all.",
        "仅列出建议中首先提到的任务和得分最低的任务；全部依据见详细 JSON 文件。",
    ),
    "all_reports": ("All reports", "全部报告"),
    "sort_hint": ("Click a column's title to sort.", "点击列标题可排序。"),
    "radar": ("The parts", "各项得分"),
    "radar_note": (
        "Means, 0 at the centre and 1 at the rim. A part without any score has no point.",
        "均值，中心为 0，外圈为 1。没有得分的项不画点。",
    ),
    "scatter": ("Cost against quality", "成本与质量"),
    "scatter_x": ("Agent's cost of a report, USD", "每份报告的 AI 成本（美元）"),
    "scatter_y": ("Quality, 0 to 1", "质量价值，0 至 1"),
    "scatter_note": ("{n} of {of} reports have both figures.", "{of} 份报告中有 {n} 份两项数据齐全。"),
    "bars": ("POET score by domain", "各领域 POET 综合分"),
    "bars_note": (
        "Means with the 95 % interval where at least 5 reports differ. n: scored reports.",
        "均值；至少 5 份互不相同的报告时附 95% 区间。n 为已评分报告数。",
    ),
    "bars_cut": ("The {n} domains with most reports of {of}.", "{of} 个领域中报告最多的 {n} 个。"),
    "nothing_to_show": ("No report has the figures for this chart.", "没有报告具备此图所需的数据。"),
    "differences": ("On the same tasks", "相同任务上的差异"),
    "differences_note": (
        "POET score less that of {best}, which has the highest mean (n = {n}; models with fewer than 5 scored reports "
        "come after others), over the tasks that both have.",
        "在两者共有的任务上，与均值最高的 {best} 的 POET 综合分之差（n = {n}；已评分报告少于 5 份的模型排在其后）。",
    ),
    "difference": ("Difference", "差异"),
    "weights": ("How it is computed", "计算方法"),
    "formula": (
        "POET = {efficiency_value:g} efficiency + {quality_value:g} quality + {strategic_value:g} strategic value; "
        "quality = {race_score:g} RACE + {fact_score:g} citation accuracy. "
        "A report that lacks a part has no POET score and is not in its mean.",
        "POET = {efficiency_value:g} × 效率价值 + {quality_value:g} × 质量价值 + {strategic_value:g} × 战略价值；"
        "质量价值 = {race_score:g} × RACE + {fact_score:g} × 引用准确率。"
        "缺少任何一项的报告没有 POET 综合分，也不计入均值。",
    ),
    "formula_fact_max": (
        "Citation accuracy is divided by {fact_accuracy_max:g}, and counts as 1 at most.",
        "引用准确率先除以 {fact_accuracy_max:g}，最高计为 1。",
    ),
    "formula_compat": (
        "Compatible with the original: RACE is divided by {race_score_max:g}.",
        "与原系统兼容：RACE 先除以 {race_score_max:g}。",
    ),
    "made": ("Made {}", "生成时间 {}"),
    "skip": ("Skip to the content", "跳到正文"),
    "rule_incomplete": (
        "Complete what is missing: {n} of {of} reports that could be read have no POET score, "
        "so the mean does not speak for them.",
        "补全缺失项：可读取的 {of} 份报告中有 {n} 份没有 POET 综合分，均值不代表这些报告。",
    ),
    "rule_unfit": (
        "Do not use without review: {n} of {of} scored reports are below {threshold:g} (acceptable).",
        "未经复核不宜使用：{of} 份已评分报告中有 {n} 份低于 {threshold:g}（合格线）。",
    ),
    "rule_inaccurate_citations": (
        "Check citations before use: {supported} of {known} that could be checked hold ({accuracy}), "
        "below {threshold} (good).",
        "使用前应核对引用：可核实的 {known} 条引用中仅 {supported} 条属实（{accuracy}），低于 {threshold}（良好线）。",
    ),
    "rule_unreadable_citations": (
        "Ask for sources that can be read: {unknown} of {cited} citations ({share}) could not be checked, "
        "more than {limit}.",
        "应要求使用可访问的来源：{cited} 条引用中有 {unknown} 条（{share}）无法核实，超过 {limit}。",
    ),
    "rule_uncited": (
        "Ask for sources: {n} of {of} reports cite nothing.",
        "应要求注明来源：{of} 份报告中有 {n} 份没有引用。",
    ),
    "rule_slower": (
        "Leave these to the expert or speed them up: {n} of {of} reports took longer than the expert, {hours} in all.",
        "应交由专家完成或提速：{of} 份报告中有 {n} 份用时超过专家，共多用 {hours}。",
    ),
    "rule_dearer": (
        "Leave these to the expert or make them cheaper: {n} of {of} reports cost more than the expert, {usd} in all.",
        "应交由专家完成或降低成本：{of} 份报告中有 {n} 份成本高于专家，共多花 {usd}。",
    ),
    "rule_attended": (
        "Plan for people's time: {n} of {of} reports have an automation below {threshold:g} (good).",
        "应预留人工时间：{of} 份报告中有 {n} 份自动化程度低于 {threshold:g}（良好线）。",
    ),
    "rule_weakest_dimension": (
        "Improve {dimension} first: it has RACE's lowest mean, {mean:.2f}, which is {distance:+.3f} from the mean of "
        "the other dimensions (n = {n}; 95 % interval, corrected for 4 dimensions: {interval}).",
        "应优先改进{dimension}：其 RACE 均值最低，为 {mean:.2f}，与其他维度均值相差 {distance:+.3f}"
        "（n = {n}；按 4 个维度校正的 95% 区间：{interval}）。",
    ),
    "rule_weak_domain": (
        "Review reports on {domain}: mean POET score {mean:.2f} (n = {n}), elsewhere {rest:.2f} (n = {n_rest}), "
        "a difference of {distance:+.3f} (95 % interval, corrected for comparing {compared} domains: {interval}).",
        "应复核 {domain} 领域的报告：POET 综合分均值 {mean:.2f}（n = {n}），其他领域为 {rest:.2f}（n = {n_rest}），"
        "相差 {distance:+.3f}（按所比较的 {compared} 个领域校正的 95% 区间：{interval}）。",
    ),
    "rule_unused_knowledge": (
        "See whether the agent can read its knowledge base: {n} reports added {units} units of knowledge and used 0.",
        "应检查智能体能否读取知识库：{n} 份报告新增了 {units} 个知识单元，复用 0 个。",
    ),
}

_LANGUAGES: tuple[Language, ...] = ("en", "zh")

LABELS: Mapping[Language, Mapping[str, str]] = {
    language: {name: texts[at] for name, texts in _TEXTS.items()} for at, language in enumerate(_LANGUAGES)
}
"""By language, then by name. Names of fields, classes, dimensions, stages and rules are those of the data."""
